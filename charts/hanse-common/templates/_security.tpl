{{/* Pod security `restricted`: user and group 65532, as in the images. */}}
{{- define "hanse-common.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "hanse-common.securityContext" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{/* A whole ServiceAccount without rights and without a token in its pods. Takes: ctx, component; [annotations]. */}}
{{- define "hanse-common.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "hanse-common.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}
