{{/* A NetworkPolicy that lets no pod of the release send or receive anything; others add one arrow each. Takes: ctx. */}}
{{- define "hanse-common.networkPolicy.deny" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "hanse-common.metadata" (dict "ctx" .ctx "component" (.component | default "deny") "suffix" .suffix) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: hanse
      app.kubernetes.io/instance: {{ .ctx.Release.Name }}
      {{- with .component }}
      app.kubernetes.io/component: {{ . }}
      {{- end }}
  policyTypes: [Ingress, Egress]
{{- end -}}

{{/* A peer: the pods of one component of this release. Takes: ctx, component. */}}
{{- define "hanse-common.networkPolicy.component" -}}
- podSelector:
    matchLabels:
      {{- include "hanse-common.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* An egress rule: names are asked of the cluster's DNS. `networkPolicy.dns` of the values: {namespace, podLabels, [ports], [cidrs]}.
     Takes: ctx. */}}
{{- define "hanse-common.networkPolicy.dns" -}}
{{- $dns := dig "dns" dict (.ctx.Values.networkPolicy | default dict) -}}
- ports:
    {{- range $dns.ports | default (list 53) }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ $dns.namespace | default "kube-system" }}
      podSelector:
        matchLabels:
          {{- toYaml ($dns.podLabels | default (dict "k8s-app" "kube-dns")) | nindent 10 }}
    {{- range $dns.cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
{{- end -}}

{{/* A rule's ports and blocks of addresses outside the cluster. Takes: ports (list of numbers), cidrs (list; empty: anywhere). */}}
{{- define "hanse-common.networkPolicy.outside" -}}
- ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  to:
    {{- if not .cidrs }}
    - namespaceSelector: {}  # some networks do not count pods among blocks of addresses
    {{- end }}
    {{- range .cidrs | default (list "0.0.0.0/0" "::/0") }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
{{- end -}}

{{/* The port of an address such as tls://host:4222; of several with commas, which share it, the first's. Takes: url, default. */}}
{{- define "hanse-common.port" -}}
{{- $host := (urlParse (splitList "," .url | first)).host -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default (.default | toString) -}}
{{- end -}}
