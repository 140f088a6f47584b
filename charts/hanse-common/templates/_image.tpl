{{/*
The reference of an image. Takes: ctx; image {repository, [registry, tag, digest]}; [public: true for an image that is
not of this project, whose tag is its own]. The registry and the tag are those of the image, else the chart's `image`,
else `global.image`; the tag is at last the chart's appVersion. A digest wins over the tag.
*/}}
{{- define "hanse-common.image" -}}
{{- $chart := .ctx.Values.image | default dict -}}
{{- $global := dig "image" dict (.ctx.Values.global | default dict) -}}
{{- $registry := coalesce .image.registry $chart.registry $global.registry -}}
{{- $tag := .image.tag -}}
{{- if not .public -}}
{{- $tag = coalesce .image.tag $chart.tag $global.tag .ctx.Chart.AppVersion -}}
{{- end -}}
{{- with $registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ $tag }}{{ end -}}
{{- end -}}

{{/* Takes: ctx. */}}
{{- define "hanse-common.pullPolicy" -}}
{{- $global := dig "image" dict (.ctx.Values.global | default dict) -}}
{{- coalesce (dig "pullPolicy" "" (.ctx.Values.image | default dict)) $global.pullPolicy "IfNotPresent" -}}
{{- end -}}

{{/* `imagePullSecrets` of a pod, a list of names; nothing where there is none. Takes: ctx. */}}
{{- define "hanse-common.pullSecrets" -}}
{{- $global := dig "image" dict (.ctx.Values.global | default dict) -}}
{{- $names := concat (dig "pullSecrets" list (.ctx.Values.image | default dict)) ($global.pullSecrets | default list) | uniq -}}
{{- with $names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}
