{{- define "hanse-datapod.name" -}}
{{- include "hanse-common.name" (dict "ctx" . "component" "datapod") -}}
{{- end -}}

{{- define "hanse-datapod.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "hanse-datapod.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "hanse-datapod.hasPolicy" -}}
{{- if or .Values.policy.inline .Values.policy.existingConfigMap .Values.policy.existingClaim }}true{{ end -}}
{{- end -}}

{{- define "hanse-datapod.hasCode" -}}
{{- if or .Values.siteCode.inline .Values.siteCode.existingConfigMap .Values.siteCode.existingClaim }}true{{ end -}}
{{- end -}}

{{- define "hanse-datapod.hasScratch" -}}
{{- if or .Values.scratch.existingClaim .Values.scratch.size }}true{{ end -}}
{{- end -}}

{{- define "hanse-datapod.hasCa" -}}
{{- if or .Values.hub.ca .Values.hub.caConfigMap .Values.hub.caSecret }}true{{ end -}}
{{- end -}}

{{/* The Secret of the token; empty where there is none. */}}
{{- define "hanse-datapod.tokenSecret" -}}
{{- if .Values.join.token -}}
{{- include "hanse-datapod.name" . }}-join
{{- else -}}
{{- .Values.join.existingSecret -}}
{{- end -}}
{{- end -}}

{{- define "hanse-datapod.poolClaim" -}}
{{- .Values.poolVolume.existingClaim | default (printf "%s-pools" (include "hanse-datapod.name" .)) -}}
{{- end -}}

{{/* Where the policy's file is in the pod. */}}
{{- define "hanse-datapod.policyFile" -}}
/etc/hanse/policy/{{ ternary .Values.policy.key "policy.yaml" (ne .Values.policy.existingClaim "") }}
{{- end -}}

{{/* What datapod and pools see of the site, at the same paths: data and code, read-only. */}}
{{- define "hanse-datapod.siteMounts" -}}
{{- range .Values.data.volumes }}
- name: data-{{ .name }}
  mountPath: /data/{{ .name }}
  readOnly: true
  {{- with .subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end }}
{{- if include "hanse-datapod.hasCode" . }}
- {name: code, mountPath: /etc/hanse/code, readOnly: true}
{{- end }}
{{- end -}}

{{- define "hanse-datapod.siteVolumes" -}}
{{- range .Values.data.volumes }}
- name: data-{{ .name }}
  {{- if .existingClaim }}
  persistentVolumeClaim: {claimName: {{ .existingClaim | quote }}, readOnly: true}
  {{- else }}
  configMap: {name: {{ .configMap | quote }}}
  {{- end }}
{{- end }}
{{- if include "hanse-datapod.hasCode" . }}
- name: code
  {{- if .Values.siteCode.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.siteCode.existingClaim | quote }}, readOnly: true}
  {{- else }}
  configMap:
    name: {{ .Values.siteCode.existingConfigMap | default (include "hanse-datapod.name" .) | quote }}
    items: [{key: {{ .Values.siteCode.key | quote }}, path: {{ .Values.siteCode.key | quote }}}]
  {{- end }}
{{- end }}
{{- end -}}

{{/* Variables that datapod and pools share. */}}
{{- define "hanse-datapod.env" -}}
{{ include "hanse-common.env.service" (dict "grace" .Values.grace) }}
- {name: HANSE_LOG_LEVEL, value: {{ .Values.log.level | default "info" }}}
- {name: HANSE_LOG_FORMAT, value: {{ .Values.log.format | default "json" }}}
{{- with .Values.otlpEndpoint }}
- {name: HANSE_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- if include "hanse-datapod.hasCode" . }}
- {name: HANSE_CODE, value: {{ printf "/etc/hanse/code/%s" .Values.siteCode.key | quote }}}
{{- end }}
{{- end -}}

{{/* An egress rule to blocks of addresses and peers. Takes: to {cidrs, peers}, ports. */}}
{{- define "hanse-datapod.egress" -}}
- ports:
    {{- range .ports }}
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

{{/* The port of an http(s) address. Takes the address. */}}
{{- define "hanse-datapod.port" -}}
{{- include "hanse-common.port" (dict "url" . "default" (ternary 443 80 (hasPrefix "https" .))) -}}
{{- end -}}

{{/* A pool with its defaults. Takes: ctx, pool. Gives YAML. */}}
{{- define "hanse-datapod.pool" -}}
{{- $pool := deepCopy .pool -}}
{{- $_ := set $pool "device" ($pool.device | default "gpu") -}}
{{- $_ := set $pool "count" (int ($pool.count | default 1)) -}}
{{- if eq $pool.device "gpu" -}}
{{- $mig := $pool.mig | default "" -}}
{{- $_ := set $pool "resource" ($pool.resource | default (ternary (printf "nvidia.com/mig-%s" $mig) "nvidia.com/gpu" (ne $mig ""))) -}}
{{- if $mig -}}
{{- $_ := set $pool "labels" (merge (dict "mig" $mig) ($pool.labels | default dict)) -}}
{{- end -}}
{{- end -}}
{{- $image := merge (deepCopy ($pool.image | default dict)) (ternary .ctx.Values.poolImage .ctx.Values.image (eq $pool.device "gpu")) -}}
{{- $_ := set $pool "image" $image -}}
{{- $resources := merge (deepCopy ($pool.resources | default dict)) (deepCopy .ctx.Values.poolResources) -}}
{{- if eq $pool.device "gpu" -}}
{{- $_ := set $resources "limits" (merge (dict $pool.resource $pool.count) $resources.limits) -}}
{{- end -}}
{{- $_ := set $pool "resources" $resources -}}
{{- toYaml $pool -}}
{{- end -}}
