{{/*
Names and labels. Every helper takes a dict:
  ctx        the root context of the chart that calls ($)
  component  coordinator | aggregator | model-registry | compensator | nats | store | keys | state | backup | test | datapod
*/}}

{{/* F, the full name: all that a release makes is called F or F-<component>. Takes the root context.
     It is the same in a chart and in its subcharts, so that these find the Secrets and addresses of the release. */}}
{{- define "hanse-common.fullname" -}}
{{- $given := dig "fullnameOverride" "" (.Values.global | default dict) -}}
{{- if $given -}}
{{- $given | trunc 40 | trimSuffix "-" -}}
{{- else if contains "hanse" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-hanse" (.Release.Name | trunc 34 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* F-<component>. */}}
{{- define "hanse-common.name" -}}
{{- printf "%s-%s" (include "hanse-common.fullname" .ctx) .component -}}
{{- end -}}

{{/* What never changes about a component's pods. */}}
{{- define "hanse-common.selectorLabels" -}}
app.kubernetes.io/name: hanse
app.kubernetes.io/instance: {{ .ctx.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All labels of an object. */}}
{{- define "hanse-common.labels" -}}
{{ include "hanse-common.selectorLabels" . }}
app.kubernetes.io/part-of: hanse
app.kubernetes.io/version: {{ .ctx.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .ctx.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .ctx.Chart.Name .ctx.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* `metadata` of an object: name F-<component>[-suffix]. Optional: suffix, annotations (a dict). */}}
{{- define "hanse-common.metadata" -}}
name: {{ include "hanse-common.name" . }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .ctx.Release.Namespace }}
labels:
  {{- include "hanse-common.labels" . | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
