{{/*
The part of a pod's spec that is the same everywhere. Takes:
  ctx, component
  pod          values of the component, all optional: priorityClassName, nodeSelector, tolerations, affinity,
               topologySpreadConstraints, runtimeClassName
  [grace]      terminationGracePeriodSeconds
  [serviceAccount]  its name; by default F-<component>
  [token]      true where the pod speaks to the API server (the keys jobs)
  [spread]     true: replicas prefer different nodes and zones where nothing else was given
*/}}
{{- define "hanse-common.podSpec" -}}
{{- $pod := .pod | default dict -}}
serviceAccountName: {{ .serviceAccount | default (include "hanse-common.name" .) }}
automountServiceAccountToken: {{ .token | default false }}
enableServiceLinks: false
securityContext:
  {{- include "hanse-common.podSecurityContext" . | nindent 2 }}
{{- with .grace }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
{{- include "hanse-common.pullSecrets" . }}
{{- with coalesce $pod.priorityClassName .ctx.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $pod.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $pod.topologySpreadConstraints | nindent 2 }}
{{- else if .spread }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "hanse-common.selectorLabels" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A whole PodDisruptionBudget. Takes: ctx, component, budget {maxUnavailable}. */}}
{{- define "hanse-common.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "hanse-common.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "hanse-common.selectorLabels" . | nindent 6 }}
{{- end -}}
