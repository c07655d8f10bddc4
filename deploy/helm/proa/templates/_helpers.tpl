{{- define "proa.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "proa.selector" -}}
app.kubernetes.io/name: proa
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Pods that serve: all, or the leaders of several hosts. */}}
{{- define "proa.servers" -}}
{{ include "proa.selector" . }}
{{- if gt (int .Values.hosts) 1 }}
leaderworkerset.sigs.k8s.io/worker-index: "0"
{{- end }}
{{- end }}

{{- define "proa.labels" -}}
{{ include "proa.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
