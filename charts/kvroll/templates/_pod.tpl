{{/* The parts of a pod that operator and gateway share; `.` is a dict of root, component and values. */}}
{{- define "kvroll.podMetadata" -}}
labels:
  {{- include "kvroll.labels" . | nindent 2 }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kvroll.podSpec" -}}
serviceAccountName: {{ include "kvroll.name" . }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .values.podSecurityContext | nindent 2 }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- with .values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "kvroll.container" -}}
image: {{ include "kvroll.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command:
  {{- toYaml .values.command | nindent 2 }}
securityContext:
  {{- toYaml .values.securityContext | nindent 2 }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with .values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- with .values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
