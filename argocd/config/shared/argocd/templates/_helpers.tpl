{{- define "argocd.image" -}}
{{- $image := .Values.global.image -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "argocd.labels" -}}
app.kubernetes.io/name: argocd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: regional
{{- end }}
