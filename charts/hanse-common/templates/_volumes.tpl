{{/* /tmp, the only place that may be written. Takes: [size], [memory: true]. */}}
{{- define "hanse-common.volumes.tmp" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .size | default "256Mi" }}
    {{- if .memory }}
    medium: Memory
    {{- end }}
{{- end -}}

{{- define "hanse-common.mounts.tmp" -}}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* Bus credentials and the CA of the bus. Takes: secret (of bus.creds); [tlsSecret: of ca.crt];
     [clientSecret: of tls.crt and tls.key, for a bus that wants certificates of its clients]. */}}
{{- define "hanse-common.volumes.bus" -}}
- name: bus
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{key: bus.creds, path: bus.creds}]
{{- with .tlsSecret }}
- name: bus-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0444
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- with .clientSecret }}
- name: bus-client
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "hanse-common.mounts.bus" -}}
- {name: bus, mountPath: /etc/hanse/bus, readOnly: true}
{{- if .tlsSecret }}
- {name: bus-tls, mountPath: /etc/hanse/bus-tls, readOnly: true}
{{- end }}
{{- if .clientSecret }}
- {name: bus-client, mountPath: /etc/hanse/bus-client, readOnly: true}
{{- end }}
{{- end -}}

{{/* The CA of an https store. Takes: caSecret (of ca.crt; may be empty). */}}
{{- define "hanse-common.volumes.store" -}}
{{- with .caSecret }}
- name: store-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0444
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end -}}

{{- define "hanse-common.mounts.store" -}}
{{- if .caSecret }}
- {name: store-tls, mountPath: /etc/hanse/store-tls, readOnly: true}
{{- end }}
{{- end -}}
