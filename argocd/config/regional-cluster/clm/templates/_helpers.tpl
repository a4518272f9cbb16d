{{- define "clm.image" -}}
{{- $image := .Values.global.image -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "clm.labels" -}}
app.kubernetes.io/name: clm
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: regional
{{- end }}

{{- define "clm.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "clm.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "clm.podEnv" -}}
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
{{- define "clm.probes" -}}
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

{{- define "clm.databaseArgs" -}}
- --db-credentials-dir=/mnt/secrets-store
- --db-sslmode={{ .Values.clm.database.sslmode }}
- --log-level={{ .Values.clm.logLevel }}
{{- end }}

{{- /* One of CLM's three Deployments. Expects: root, name, role, values, args, port (0: none), migrate, tasks. */}}
{{- define "clm.deployment" -}}
{{- $root := .root }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "clm.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  replicas: {{ .values.replicas }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      app.kubernetes.io/name: clm
      app.kubernetes.io/component: {{ .name }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  template:
    metadata:
      labels:
        {{- include "clm.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
      annotations:
        checksum/secrets: {{ include (print $root.Template.BasePath "/secretproviderclass.yaml") $root | sha256sum }}
        {{- if .tasks }}
        checksum/tasks: {{ include (print $root.Template.BasePath "/adapter-tasks.yaml") $root | sha256sum }}
        {{- end }}
    spec:
      serviceAccountName: clm
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      securityContext:
        {{- include "clm.podSecurity" $root | nindent 8 }}
      {{- if gt (int .values.replicas) 1 }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: clm
              app.kubernetes.io/component: {{ .name }}
          matchLabelKeys: [pod-template-hash]
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: clm
              app.kubernetes.io/component: {{ .name }}
          matchLabelKeys: [pod-template-hash]
      {{- end }}
      {{- if .migrate }}
      initContainers:
        - name: migrate
          image: {{ include "clm.image" $root }}
          imagePullPolicy: {{ $root.Values.global.image.pullPolicy }}
          command: [regionctl, serve, {{ .role }}]
          args:
            - --migrate-only
            {{- include "clm.databaseArgs" $root | nindent 12 }}
          env:
            {{- include "clm.podEnv" $root | nindent 12 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- include "clm.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - name: secrets
              mountPath: /mnt/secrets-store
              readOnly: true
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ include "clm.image" $root }}
          imagePullPolicy: {{ $root.Values.global.image.pullPolicy }}
          command: [regionctl, serve, {{ .role }}]
          args:
            - --health-port={{ $root.Values.clm.healthPort }}
            {{- include "clm.databaseArgs" $root | nindent 12 }}
            {{- range .args }}
            - {{ . }}
            {{- end }}
          env:
            {{- include "clm.podEnv" $root | nindent 12 }}
          ports:
            {{- if .port }}
            - name: http
              containerPort: {{ .port }}
            {{- end }}
            - name: health
              containerPort: {{ $root.Values.clm.healthPort }}
          {{- include "clm.probes" $root | nindent 10 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- include "clm.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - name: secrets
              mountPath: /mnt/secrets-store
              readOnly: true
            {{- if .tasks }}
            - name: tasks
              mountPath: /etc/clm/adapters
              readOnly: true
            {{- end }}
      volumes:
        {{- if .tasks }}
        - name: tasks
          configMap:
            name: clm-adapter-tasks
        {{- end }}
        - name: secrets
          csi:
            driver: secrets-store.csi.k8s.io
            readOnly: true
            volumeAttributes:
              secretProviderClass: clm
{{- end }}
