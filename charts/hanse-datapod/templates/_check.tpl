{{/* Refuses values that could not work, or that are not what was meant, with what to do. */}}
{{- define "hanse-datapod.check" -}}
{{- if not .Values.hub.url -}}
{{- fail "hub.url is empty: give the address of the hub, such as https://hub.example.org" -}}
{{- end -}}
{{- if and .Values.join.token .Values.join.existingSecret -}}
{{- fail "join.token and join.existingSecret are both given: one of them" -}}
{{- end -}}
{{- if gt (len (compact (list .Values.hub.ca .Values.hub.caConfigMap .Values.hub.caSecret))) 1 -}}
{{- fail "hub.ca, hub.caConfigMap and hub.caSecret: only one of them" -}}
{{- end -}}
{{- if and .Values.scratch.existingClaim (or .Values.scratch.size .Values.scratch.storageClass) -}}
{{- fail "scratch.existingClaim is a volume that is there: leave out scratch.size and scratch.storageClass" -}}
{{- end -}}
{{- if and .Values.scratch.storageClass (not .Values.scratch.size) -}}
{{- fail "scratch.storageClass is given without scratch.size, such as 200Gi" -}}
{{- end -}}
{{- range $what := list "policy" "siteCode" -}}
{{- $given := index $.Values $what -}}
{{- if gt (len (compact (list $given.inline $given.existingConfigMap $given.existingClaim))) 1 -}}
{{- fail (printf "%s.inline, %s.existingConfigMap and %s.existingClaim: only one of them" $what $what $what) -}}
{{- end -}}
{{- end -}}
{{- with .Values.siteCode -}}
{{- if and .inline (not $.Values.policy.existingConfigMap) (not $.Values.policy.existingClaim) -}}
{{- $digest := sha256sum .inline -}}
{{- if not (has $digest (dig "site_code" "digests" list $.Values.policy.inline)) -}}
{{- fail (printf "siteCode.inline: the policy does not allow this file; if it may run, add its SHA-256 to policy.inline: {site_code: {digests: [%s]}}" $digest) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "hanse-datapod.checkData" . -}}
{{- include "hanse-datapod.checkPools" . -}}
{{- end -}}

{{- define "hanse-datapod.checkData" -}}
{{- $data := .Values.data -}}
{{- if and $data.train $data.genotypes -}}
{{- fail "data.train and data.genotypes are both given: a datapod has one or the other" -}}
{{- end -}}
{{- if not (or $data.train $data.genotypes (eq $data.kind "code")) -}}
{{- fail "data.train and data.genotypes are empty: give a path below /data/<name of a volume>, or data.kind: code with siteCode" -}}
{{- end -}}
{{- if and (eq $data.kind "code") (not (include "hanse-datapod.hasCode" .)) -}}
{{- fail "data.kind is code, and there is no siteCode with a load()" -}}
{{- end -}}
{{- if and $data.genotypes (not (has $data.kind (list "auto" "plink"))) -}}
{{- fail (printf "data.kind is %s, and data.genotypes are PLINK files: leave the kind out" $data.kind) -}}
{{- end -}}
{{- if and (or $data.phenotypes $data.covariates) (not $data.genotypes) -}}
{{- fail "data.phenotypes and data.covariates are for genotypes: give data.genotypes" -}}
{{- end -}}
{{- $names := list -}}
{{- range $data.volumes -}}
{{- if has .name $names -}}
{{- fail (printf "data.volumes: %s is there twice" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- range $field := list "train" "genotypes" "test" "phenotypes" "covariates" -}}
{{- with get $data $field -}}
{{- $volume := index (splitList "/" .) 2 -}}
{{- if not (has $volume $names) -}}
{{- fail (printf "data.%s: %s lies in no volume of data.volumes (%s)" $field . (join ", " $names | default "there is none")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hanse-datapod.checkPools" -}}
{{- $names := list -}}
{{- range .Values.pools -}}
{{- if eq .name "local" -}}
{{- fail "pools: \"local\" is the datapod's own pod; call the pool otherwise" -}}
{{- end -}}
{{- if has .name $names -}}
{{- fail (printf "pools: %s is there twice" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if and .mig .resource -}}
{{- fail (printf "pools: %s has mig and resource: one of them (mig 1g.10gb is the resource nvidia.com/mig-1g.10gb)" .name) -}}
{{- end -}}
{{- if and (eq (.device | default "gpu") "cpu") (or .mig .resource .runtimeClassName) -}}
{{- fail (printf "pools: %s has device cpu, and mig, resource or runtimeClassName of a GPU" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
