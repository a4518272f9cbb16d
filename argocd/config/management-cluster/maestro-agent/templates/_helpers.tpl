{{- define "maestro-agent.image" -}}
{{- $image := .Values.global.image -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "maestro-agent.labels" -}}
app.kubernetes.io/name: maestro-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: regional
{{- end }}

{{- define "maestro-agent.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "maestro-agent.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "maestro-agent.podEnv" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{- /* Start-up is asked every second, so that a pod serves as soon as it can; then only liveness and readiness go on. */}}
{{- define "maestro-agent.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
{{- end }}
