{{- define "peloton.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "peloton.database" -}}
{{- if .Values.database.existingSecret -}}
{{ .Values.database.existingSecret }}
{{- else -}}
peloton
{{- end -}}
{{- end }}

{{- define "peloton.labels" -}}
app.kubernetes.io/part-of: peloton
app.kubernetes.io/name: {{ . }}
{{- end }}

{{- define "peloton.tlsFiles" -}}
PELOTON_TLS_CA_FILE: /etc/peloton/tls/ca.crt
PELOTON_TLS_CERT_FILE: /etc/peloton/tls/tls.crt
PELOTON_TLS_KEY_FILE: /etc/peloton/tls/tls.key
PELOTON_TLS_SERVER_NAME: {{ .Values.tls.serverName | quote }}
{{- end }}

{{- define "peloton.healthProbe" -}}
exec:
  command: [python, /opt/peloton/deploy/healthcheck.py, {{ . }}]
{{- end }}

{{- define "peloton.webProbe" -}}
{{- if .Values.tls.enabled -}}
tcpSocket: {port: http}
{{- else -}}
httpGet: {path: /settings.json, port: http}
{{- end }}
{{- end }}
