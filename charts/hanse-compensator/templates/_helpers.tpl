{{/* true where this release is the compensator alone; empty within the hub's. */}}
{{- define "hanse-compensator.apart" -}}
{{- if not .Values.hub.sameRelease }}true{{ end -}}
{{- end -}}

{{- define "hanse-compensator.busSecret" -}}
{{- .Values.bus.existingSecret | default (printf "%s-bus-compensator" (include "hanse-common.fullname" .)) -}}
{{- end -}}

{{- define "hanse-compensator.storeSecret" -}}
{{- .Values.store.existingSecret | default (printf "%s-store-compensator" (include "hanse-common.fullname" .)) -}}
{{- end -}}

{{/* The Secret of the key; empty: the key is made on the volume. */}}
{{- define "hanse-compensator.keySecret" -}}
{{- if .Values.key.existingSecret -}}
{{- .Values.key.existingSecret -}}
{{- else if not (include "hanse-compensator.apart" .) -}}
{{- include "hanse-common.fullname" . }}-compensator-key
{{- end -}}
{{- end -}}

{{- define "hanse-compensator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "hanse-common.name" (dict "ctx" . "component" "compensator")) -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An egress rule to blocks of addresses and peers. Takes: to {cidrs, ports, peers}, port (of the address). */}}
{{- define "hanse-compensator.egress" -}}
- ports:
    {{- range .to.ports | default (list (int .port)) }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  to:
    {{- range .to.cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
    {{- with .to.peers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The port of an address, by its scheme where it names none. Takes the address. */}}
{{- define "hanse-compensator.port" -}}
{{- $scheme := (urlParse .).scheme -}}
{{- $usual := dict "https" 443 "wss" 443 "http" 80 "ws" 80 -}}
{{- include "hanse-common.port" (dict "url" . "default" (get $usual $scheme | default 4222)) -}}
{{- end -}}

{{/* Refuses what would take away what a compensator is for, or could not work. */}}
{{- define "hanse-compensator.check" -}}
{{- $account := include "hanse-compensator.serviceAccount" . -}}
{{- $hub := list "coordinator" "aggregator" "model-registry" "nats" "store" "keys" "state" "backup" -}}
{{- if not $account -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: name a ServiceAccount that is the compensator's alone" -}}
{{- end -}}
{{- if eq $account "default" -}}
{{- fail "serviceAccount.name: the account \"default\" is everybody's in the namespace; name one that is the compensator's alone" -}}
{{- end -}}
{{- range $hub -}}
{{- if or (eq $account .) (hasSuffix (printf "-%s" .) $account) -}}
{{- fail (printf "serviceAccount.name: %q is an account of the hub (%s). Whoever holds the hub's rights and the compensator's key can read every update; give the compensator an account of its own" $account .) -}}
{{- end -}}
{{- if hasSuffix (printf "-bus-%s" .) $.Values.bus.existingSecret -}}
{{- fail (printf "bus.existingSecret: %q has the hub's credentials (%s); the hub's operator makes some for the compensator (F-bus-compensator)" $.Values.bus.existingSecret .) -}}
{{- end -}}
{{- if hasSuffix (printf "-store-%s" .) $.Values.store.existingSecret -}}
{{- fail (printf "store.existingSecret: %q has the hub's credentials (%s); the hub's operator makes some for the compensator (F-store-compensator)" $.Values.store.existingSecret .) -}}
{{- end -}}
{{- end -}}
{{- $found := lookup "v1" "ServiceAccount" .Release.Namespace $account -}}
{{- $labels := dig "metadata" "labels" dict ($found | default dict) -}}
{{- $component := get $labels "app.kubernetes.io/component" -}}
{{- if and (eq (get $labels "app.kubernetes.io/part-of") "hanse") (ne $component "compensator") -}}
{{- fail (printf "serviceAccount.name: %q in namespace %s belongs to the hub's %s; give the compensator an account of its own" $account .Release.Namespace $component) -}}
{{- end -}}
{{- if include "hanse-compensator.apart" . -}}
{{- if not .Values.bus.url -}}
{{- fail "bus.url is empty: give the address of the hub's bus, such as tls://bus.hub.example.org:4222" -}}
{{- end -}}
{{- if not .Values.bus.existingSecret -}}
{{- fail "bus.existingSecret is empty: name a Secret with bus.creds, which the hub's operator hands over (docs/operator.md, \"The compensator, run apart\")" -}}
{{- end -}}
{{- if not .Values.store.url -}}
{{- fail "store.url is empty: give the address of the hub's object store, such as https://store.hub.example.org" -}}
{{- end -}}
{{- if not .Values.store.existingSecret -}}
{{- fail "store.existingSecret is empty: name a Secret with access_key and secret_key, which the hub's operator hands over" -}}
{{- end -}}
{{- else if .Values.share.enabled -}}
{{- fail "share.enabled: compensators that share masks protect from each other and from the hub only apart; install this chart by itself for each of them" -}}
{{- else if .Chart.IsRoot -}}
{{- fail "hub.sameRelease is set by the hub's chart alone; install the compensator apart, or set compensator.enabled there" -}}
{{- end -}}
{{- end -}}
