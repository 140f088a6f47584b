{{/*
The data of a ConfigMap of how a service reaches bus, store and telemetry. Takes:
  bus    {url, [ca: true where ca.crt of the bus is mounted], [client: true where a client's certificate is]}
  store  {url, bucket, region, [ca: true]}
  [log]  {level, format}; [otlpEndpoint]
*/}}
{{- define "hanse-common.connection" -}}
HANSE_BUS_URL: {{ .bus.url | quote }}
{{- if .bus.ca }}
HANSE_BUS_CA: /etc/hanse/bus-tls/ca.crt
{{- end }}
{{- if .bus.client }}
HANSE_BUS_CERT: /etc/hanse/bus-client/tls.crt
HANSE_BUS_KEY: /etc/hanse/bus-client/tls.key
{{- end }}
{{- with .store }}
HANSE_STORE_URL: {{ .url | quote }}
HANSE_STORE_BUCKET: {{ .bucket | default "hanse" | quote }}
HANSE_STORE_REGION: {{ .region | default "us-east-1" | quote }}
{{- if .ca }}
HANSE_STORE_CA: /etc/hanse/store-tls/ca.crt
{{- end }}
{{- end }}
{{- with .log }}
HANSE_LOG_LEVEL: {{ .level | default "info" }}
HANSE_LOG_FORMAT: {{ .format | default "json" }}
{{- end }}
{{- with .otlpEndpoint }}
HANSE_OTLP_ENDPOINT: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* `env` entries that every service of ours has. Takes: grace (seconds). */}}
{{- define "hanse-common.env.service" -}}
- {name: HANSE_HEALTH_HOST, value: "0.0.0.0"}
- {name: HANSE_HEALTH_PORT, value: "8081"}
- {name: HANSE_GRACE, value: {{ .grace | quote }}}
- {name: HANSE_PATIENCE, value: "300"}
{{- end -}}

{{/* The bus credentials that `hanse-common.volumes.bus` mounts. */}}
{{- define "hanse-common.env.bus" -}}
- {name: HANSE_BUS_CREDS, value: /etc/hanse/bus/bus.creds}
{{- end -}}

{{/* The store's keys from a Secret. Takes: secret (its name); [keys: {accessKey, secretKey}, as they are called in it]. */}}
{{- define "hanse-common.env.store" -}}
{{- $keys := .keys | default dict -}}
- name: HANSE_STORE_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ $keys.accessKey | default "access_key" }}}
- name: HANSE_STORE_SECRET_KEY
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ $keys.secretKey | default "secret_key" }}}
{{- end -}}

{{/* Further variables of the user. Takes: a dict of names to values. */}}
{{- define "hanse-common.env.extra" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
