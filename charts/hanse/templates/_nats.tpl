{{/* nats.conf. The operator, the accounts and the resolver come from accounts.conf, which a Secret holds. Takes the root context. */}}
{{- define "hanse.natsConf" -}}
{{- $n := .Values.nats -}}
{{- $name := printf "%s-nats" (include "hanse.fullname" .) -}}
listen: "0.0.0.0:4222"
server_name: $SERVER_NAME
http: "0.0.0.0:8222"
pid_file: "/tmp/nats.pid"  # of the processes that the pod's containers see
include ./accounts.conf
max_payload: 1114112
# A client's token, with its permissions, comes in one line; the server's own limit is 4 KiB.
max_control_line: 65536
max_connections: 65536
# Thousands may come at once, after a restart; the server's own limit for looking at each one's token is 2 s.
authorization { timeout: 30 }
write_deadline: "10s"
ping_interval: "20s"
lame_duck_grace_period: "5s"
lame_duck_duration: "30s"
jetstream {
  store_dir: "/data/jetstream"
  max_file_store: {{ include "hanse.busStorage" . }}
  max_memory_store: {{ $n.jetstream.maxMemoryStore | default "64MB" }}
}
{{- if .Values.tls.enabled }}
tls {
  cert_file: "/etc/nats-tls/tls.crt"
  key_file: "/etc/nats-tls/tls.key"
  timeout: 30  # for the same reason: the server's own 2 s throw away handshakes that it has begun
}
{{- end }}
{{- if gt (int $n.replicas) 1 }}
cluster {
  name: {{ $name | quote }}
  listen: "0.0.0.0:6222"
  no_advertise: true  # the pods' own addresses are of no use to a site, nor are they in the certificate
  routes: [
    {{- range $i := until (int $n.replicas) }}
    "nats-route://{{ $name }}-{{ $i }}.{{ $name }}-pods:6222"
    {{- end }}
  ]
  {{- if .Values.tls.enabled }}
  tls {
    cert_file: "/etc/nats-tls/tls.crt"
    key_file: "/etc/nats-tls/tls.key"
    ca_file: "/etc/nats-tls/ca.crt"
    verify: true
  }
  {{- end }}
}
{{- end }}
{{- if $n.leaf.enabled }}
leafnodes {
  listen: "0.0.0.0:7422"
  no_advertise: true
  {{- if .Values.tls.enabled }}
  tls {
    cert_file: "/etc/nats-tls/tls.crt"
    key_file: "/etc/nats-tls/tls.key"
  }
  {{- end }}
}
{{- end }}
{{- if $n.websocket.enabled }}
websocket {
  listen: "0.0.0.0:9222"
  compression: true
  handshake_timeout: "30s"
  {{- if and $n.websocket.tls .Values.tls.enabled }}
  tls {
    cert_file: "/etc/nats-tls/tls.crt"
    key_file: "/etc/nats-tls/tls.key"
    timeout: 30
  }
  {{- else }}
  no_tls: true
  {{- end }}
}
{{- end }}
{{- with $n.extraConfig }}
{{ . }}
{{- end }}
{{- end -}}
