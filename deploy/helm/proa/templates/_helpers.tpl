{{- define "proa.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "proa.selector" -}}
app.kubernetes.io/name: proa
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "proa.labels" -}}
{{ include "proa.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
