{{/*
The three probes of a service of ours, which answers /healthz (alive) and /readyz (bus and store answer, and it works).
Takes: ctx. `probes` of the chart's values, all optional: {startupSeconds, readinessPeriodSeconds, livenessPeriodSeconds,
timeoutSeconds}. Liveness asks only whether the process answers: a hub without its bus is not made better by restarts.
*/}}
{{- define "hanse-common.probes" -}}
{{- $p := .ctx.Values.probes | default dict -}}
{{- $timeout := $p.timeoutSeconds | default 5 -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  timeoutSeconds: {{ $timeout }}
  failureThreshold: {{ div ($p.startupSeconds | default 120) 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: {{ $p.readinessPeriodSeconds | default 5 }}
  timeoutSeconds: {{ $timeout }}
  failureThreshold: 3
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: {{ $p.livenessPeriodSeconds | default 15 }}
  timeoutSeconds: {{ $timeout }}
  failureThreshold: 4
{{- end -}}
