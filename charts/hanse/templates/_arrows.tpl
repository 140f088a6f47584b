{{/* The arrows between pods of the release, as YAML: {arrows: [{from, to, port}]}. A test compares them with the code. */}}
{{- define "hanse.arrows" -}}
{{- /* A restore comes when the rest is down (docs/operator.md): its way is there before it is needed. */ -}}
{{- $bus := list "coordinator" "aggregator" "model-registry" "state" "restore" -}}
{{- $store := list "coordinator" "aggregator" "model-registry" "restore" -}}
{{- if .Values.backup.enabled -}}{{- $bus = append $bus "backup" -}}{{- $store = append $store "backup" -}}{{- end -}}
{{- if .Values.tests.enabled -}}{{- $bus = append $bus "test" -}}{{- $store = append $store "test" -}}{{- end -}}
{{- if .Values.store.enabled -}}{{- $store = append $store "state" -}}{{- end -}}
arrows:
  {{- if .Values.nats.enabled }}
  {{- range $bus }}
  - {from: {{ . }}, to: nats, port: 4222}
  {{- end }}
  {{- if gt (int .Values.nats.replicas) 1 }}
  - {from: nats, to: nats, port: 6222}
  {{- end }}
  {{- end }}
  {{- if .Values.store.enabled }}
  {{- range $store }}
  - {from: {{ . }}, to: store, port: 8333}
  {{- end }}
  {{- end }}
  {{- if .Values.console.enabled }}
  - {from: console, to: coordinator, port: 8080}
  {{- end }}
  {{- if .Values.tests.enabled }}
  - {from: test, to: coordinator, port: 8080}
  {{- end }}
{{/* The compensator's own chart has the other end of its arrows. */}}
inward:
  {{- if .Values.compensator.enabled }}
  {{- if .Values.nats.enabled }}
  - {from: compensator, to: nats, port: 4222}
  {{- end }}
  {{- if .Values.store.enabled }}
  - {from: compensator, to: store, port: 8333}
  {{- end }}
  {{- end }}
outside:
  {{- if not .Values.nats.enabled }}
  - {to: bus, from: {{ $bus | toJson }}, port: {{ include "hanse-common.port" (dict "url" .Values.externalNats.url "default" 4222) }}}
  {{- end }}
  {{- if not .Values.store.enabled }}
  - {to: store, from: {{ $store | toJson }}, port: {{ include "hanse-common.port" (dict "url" .Values.externalStore.url "default" (ternary 80 443 (hasPrefix "http://" .Values.externalStore.url))) }}}
  {{- end }}
  {{- if .Values.otlpEndpoint }}
  - {to: otlp, from: {{ concat (list "coordinator" "aggregator" "model-registry") (ternary (list "console") list .Values.console.enabled) (ternary (list "compensator") list .Values.compensator.enabled) | toJson }}, port: {{ include "hanse-common.port" (dict "url" .Values.otlpEndpoint "default" 4318) }}}
  {{- end }}
  {{- with .Values.hub.signIn.provider.issuer }}
  - {to: provider, from: ["coordinator"], port: {{ include "hanse-common.port" (dict "url" . "default" 443) }}}
  {{- end }}
  {{- if .Values.tests.enabled }}
  {{- with .Values.nats.publicUrl }}
  - {to: public-bus, from: ["test"], port: {{ include "hanse-common.port" (dict "url" . "default" (ternary 443 4222 (hasPrefix "ws" .))) }}}
  {{- end }}
  {{- with .Values.store.publicUrl }}
  - {to: public-store, from: ["test"], port: {{ include "hanse-common.port" (dict "url" . "default" (ternary 80 443 (hasPrefix "http://" .))) }}}
  {{- end }}
  {{- end }}
dns: {{ concat (list "coordinator" "aggregator" "model-registry" "state" "restore") (ternary (list "console") list .Values.console.enabled) (ternary (list "nats") list .Values.nats.enabled) (ternary (list "backup") list .Values.backup.enabled) (ternary (list "test") list .Values.tests.enabled) | toJson }}
{{- end -}}
