{{/* Every helper here takes the root context, except where it says otherwise. */}}

{{- define "hanse.fullname" -}}{{ include "hanse-common.fullname" . }}{{- end -}}

{{/* The name of a Secret. Takes: ctx, secret (such as bus-coordinator). */}}
{{- define "hanse.secret" -}}
{{- index (.ctx.Values.secrets.names | default dict) .secret | default (printf "%s-%s" (include "hanse.fullname" .ctx) .secret) -}}
{{- end -}}

{{/* The Secret with ca.crt of the bus; empty where the bus has no TLS, or one that the system's CAs know. */}}
{{- define "hanse.busTlsSecret" -}}
{{- if not .Values.nats.enabled -}}
{{- .Values.externalNats.caSecret -}}
{{- else if .Values.tls.enabled -}}
{{- .Values.tls.existingSecret | default (printf "%s-bus-tls" (include "hanse.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{/* The Secret of the services' own certificate for an external bus. */}}
{{- define "hanse.busClientSecret" -}}
{{- if not .Values.nats.enabled -}}{{ .Values.externalNats.clientCertSecret }}{{- end -}}
{{- end -}}

{{/* How the keys of an identity are called in its Secret, as YAML. */}}
{{- define "hanse.storeKeys" -}}
{{- if not .Values.store.enabled -}}{{ toYaml .Values.externalStore.keys }}{{- end -}}
{{- end -}}

{{- define "hanse.busUrl" -}}
{{- if .Values.nats.enabled -}}
{{- ternary "tls" "nats" .Values.tls.enabled }}://{{ include "hanse.fullname" . }}-nats:4222
{{- else -}}
{{- required "externalNats.url: the address of your NATS is needed where nats.enabled is false" .Values.externalNats.url -}}
{{- end -}}
{{- end -}}

{{/* What sites are told: without another address the Services' whole names, for sites in other namespaces of the cluster. */}}
{{- define "hanse.busPublicUrl" -}}
{{- if .Values.nats.publicUrl -}}
{{- .Values.nats.publicUrl -}}
{{- else if .Values.nats.enabled -}}
{{- printf "%s://%s-nats.%s.svc.%s:4222" (ternary "tls" "nats" .Values.tls.enabled) (include "hanse.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}
{{- end -}}

{{- define "hanse.storePublicUrl" -}}
{{- if .Values.store.publicUrl -}}
{{- .Values.store.publicUrl -}}
{{- else if .Values.store.enabled -}}
{{- printf "http://%s-store.%s.svc.%s:8333" (include "hanse.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}
{{- end -}}

{{- define "hanse.busReplicas" -}}
{{- if .Values.nats.enabled -}}{{ min 3 (int .Values.nats.replicas) }}{{- else -}}{{ .Values.externalNats.replicas }}{{- end -}}
{{- end -}}

{{/* {url, bucket, region, ca} of the object store, as YAML. */}}
{{- define "hanse.store" -}}
{{- if .Values.store.enabled -}}
url: http://{{ include "hanse.fullname" . }}-store:8333
bucket: hanse
region: us-east-1
{{- else -}}
url: {{ required "externalStore.url: the address of your S3 storage is needed where store.enabled is false" .Values.externalStore.url | quote }}
bucket: {{ .Values.externalStore.bucket | quote }}
region: {{ .Values.externalStore.region | quote }}
{{- if .Values.externalStore.caSecret }}
ca: true
{{- end }}
{{- end -}}
{{- end -}}

{{- define "hanse.storeCaSecret" -}}
{{- if not .Values.store.enabled -}}{{ .Values.externalStore.caSecret }}{{- end -}}
{{- end -}}

{{/* The data of the ConfigMap F-connection. */}}
{{- define "hanse.connection" -}}
{{- include "hanse-common.connection" (dict
  "bus" (dict "url" (include "hanse.busUrl" .) "ca" (include "hanse.busTlsSecret" .) "client" (include "hanse.busClientSecret" .))
  "store" (include "hanse.store" . | fromYaml)
  "log" .Values.log
  "otlpEndpoint" .Values.otlpEndpoint) -}}
{{- end -}}

{{/* The names that the certificate of the bus is for, as a YAML list. */}}
{{- define "hanse.busHosts" -}}
{{- $nats := printf "%s-nats" (include "hanse.fullname" .) -}}
{{- $ns := .Release.Namespace -}}
{{- range $name := list $nats (printf "*.%s-pods" $nats) }}
{{- range $suffix := list "" (printf ".%s" $ns) (printf ".%s.svc" $ns) (printf ".%s.svc.%s" $ns $.Values.clusterDomain) }}
- {{ printf "%s%s" $name $suffix | quote }}
{{- end }}
{{- end }}
- localhost
{{- range splitList "," .Values.nats.publicUrl | compact }}
- {{ regexReplaceAll ":[0-9]+$" (urlParse .).host "" | quote }}
{{- end }}
{{- range .Values.tls.hosts }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The name of a PriorityClass of the release. It is the whole cluster's, where a release of another namespace may be called the
     same. Takes: ctx, priority (hub | work). */}}
{{- define "hanse.priorityClass" -}}
{{- printf "%s-%s-%s" .ctx.Release.Namespace (include "hanse.fullname" .ctx) .priority -}}
{{- end -}}

{{/* Nine tenths, or another share, of an amount as Kubernetes writes it, in bytes. Takes: amount, share. */}}
{{- define "hanse.shareOf" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $amount := .amount | toString -}}
{{- $number := regexFind "^[0-9.e+]+" $amount -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number $amount)) .share | int64 -}}
{{- end -}}

{{/* What JetStream may take of each server's volume; every stream has its share of it. Takes: the root. */}}
{{- define "hanse.busStorage" -}}
{{- .Values.nats.jetstream.maxFileStore | default (include "hanse.shareOf" (dict "amount" .Values.nats.persistence.size "share" 0.8)) -}}
{{- end -}}

{{/* GOMEMLIMIT of a server written in Go: what is given, else nine tenths of the memory limit. Takes: pod. */}}
{{- define "hanse.goMemLimit" -}}
{{- .pod.goMemLimit | default (include "hanse.shareOf" (dict "amount" .pod.resources.limits.memory "share" 0.9)) -}}
{{- end -}}

{{/* The values of a component's pod with its default priority class. Takes: ctx, pod, priority (hub | work). */}}
{{- define "hanse.pod" -}}
{{- $class := "" -}}
{{- if .ctx.Values.priorityClasses.create -}}
{{- $class = include "hanse.priorityClass" . -}}
{{- end -}}
{{- toYaml (merge (dict "priorityClassName" (coalesce .pod.priorityClassName .ctx.Values.priorityClassName $class | default "")) (deepCopy .pod)) -}}
{{- end -}}

{{/* Annotations of a service's pods. Takes: ctx, pod, [checksum: true where it reads F-connection]. */}}
{{- define "hanse.podAnnotations" -}}
checksum/connection: {{ include "hanse.connection" .ctx | sha256sum }}
{{- with .pod.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Seconds between the signal to stop and the kill: its own grace and what Python needs to leave. Takes: grace, [preStop]. */}}
{{- define "hanse.termination" -}}
{{- add (int .grace) (int (.preStop | default 0)) 10 -}}
{{- end -}}

{{/* Networks of the proxies before API and console, with commas: those that are named, else any private one where Ingress or Gateway
     lead here. Empty: there is no proxy. */}}
{{- define "hanse.trustedProxies" -}}
{{- if .Values.hub.trustedProxies -}}
{{- join "," .Values.hub.trustedProxies -}}
{{- else if or .Values.ingress.enabled .Values.gateway.enabled -}}
10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fc00::/7
{{- end -}}
{{- end -}}

{{/* Address at which browsers reach the console; empty: it is not known. */}}
{{- define "hanse.consoleUrl" -}}
{{- $ingress := and .Values.console.enabled .Values.ingress.enabled .Values.ingress.console.host -}}
{{- $gateway := and .Values.console.enabled .Values.gateway.enabled .Values.gateway.console.host -}}
{{- if .Values.hub.consoleUrl -}}
{{- .Values.hub.consoleUrl -}}
{{- else if $ingress -}}
{{- ternary "https" "http" .Values.ingress.tls.enabled }}://{{ $ingress }}
{{- else if $gateway -}}
https://{{ $gateway }}
{{- end -}}
{{- end -}}

{{/* What console and coordinator both have, by which the one is believed who asks through it. Optional: keys that were made for an
     earlier release lack it until they are made anew. */}}
{{- define "hanse.proxySecret" -}}
- name: HANSE_PROXY_SECRET
  valueFrom:
    secretKeyRef: {name: {{ include "hanse.secret" (dict "ctx" . "secret" "proxy-secret") }}, key: proxy_secret, optional: true}
{{- end -}}

{{/* A pause before SIGTERM, so that Services and Ingress have forgotten the pod when it stops listening. Takes: seconds. */}}
{{- define "hanse.preStop" -}}
lifecycle:
  preStop:
    exec:
      command: [python, -c, "import time; time.sleep({{ .seconds }})"]
{{- end -}}

{{/* Environment, mounts and volumes of one of our services, by role. Takes: ctx, role. */}}
{{- define "hanse.env" -}}
{{- include "hanse-common.env.bus" dict }}
{{ include "hanse-common.env.store" (dict "secret" (include "hanse.secret" (dict "ctx" .ctx "secret" (printf "store-%s" .role))) "keys" (include "hanse.storeKeys" .ctx | fromYaml)) }}
{{- end -}}

{{- define "hanse.mounts" -}}
{{- include "hanse-common.mounts.tmp" dict }}
{{ include "hanse-common.mounts.bus" (dict "tlsSecret" (include "hanse.busTlsSecret" .ctx) "clientSecret" (include "hanse.busClientSecret" .ctx)) }}
{{- include "hanse-common.mounts.store" (dict "caSecret" (include "hanse.storeCaSecret" .ctx)) }}
{{- end -}}

{{- define "hanse.volumes" -}}
{{- include "hanse-common.volumes.tmp" (dict "size" .tmp) }}
{{ include "hanse-common.volumes.bus" (dict "secret" (include "hanse.secret" (dict "ctx" .ctx "secret" (printf "bus-%s" .role))) "tlsSecret" (include "hanse.busTlsSecret" .ctx) "clientSecret" (include "hanse.busClientSecret" .ctx)) }}
{{- include "hanse-common.volumes.store" (dict "caSecret" (include "hanse.storeCaSecret" .ctx)) }}
{{- end -}}

{{- define "hanse.envFrom" -}}
envFrom:
  - configMapRef: {name: {{ include "hanse.fullname" .ctx }}-connection}
{{- end -}}
