{{- /* Peers of a network policy: a list of address ranges. */}}
{{- define "maestro-server.ranges" -}}
{{- range . }}
- ipBlock:
    cidr: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Who may ask for metrics. The node's own probes need no rule: no policy stands between a node and its pods. */}}
{{- define "maestro-server.scraping" -}}
{{- with .Values.global.monitoring }}
{{- if .enabled }}
- from:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ .namespace }}}
  ports:
    - {protocol: TCP, port: health}
{{- end }}
{{- end }}
{{- end }}

{{- /* Names: CoreDNS in pods, or on the node behind the Service's address, as EKS Auto Mode has it. */}}
{{- define "maestro-server.resolving" -}}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
      podSelector:
        matchLabels: {k8s-app: kube-dns}
    {{- include "maestro-server.ranges" .Values.global.network.serviceRanges | trim | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
