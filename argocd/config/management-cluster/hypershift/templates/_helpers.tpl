{{- define "hypershift.image" -}}
{{- $image := .Values.global.image -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hypershift.labels" -}}
app.kubernetes.io/name: hypershift
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: regional
{{- end }}

{{- define "hypershift.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "hypershift.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "hypershift.podEnv" -}}
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
{{- define "hypershift.probes" -}}
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
