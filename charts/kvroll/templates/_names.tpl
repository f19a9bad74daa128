{{/* Names and labels; `.` is a dict of root and component. */}}
{{- define "kvroll.name" -}}
{{- $base := .root.Release.Name -}}
{{- if not (contains "kvroll" $base) }}{{ $base = printf "%s-kvroll" $base }}{{ end -}}
{{- printf "%s-%s" ($base | trunc 50 | trimSuffix "-") .component -}}
{{- end -}}

{{- define "kvroll.selector" -}}
app.kubernetes.io/name: kvroll
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kvroll.labels" -}}
{{ include "kvroll.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "kvroll.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
