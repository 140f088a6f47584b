#!/bin/sh
# Makes hapmap1.prune: which SNPs PLINK 1.9 keeps of the two hapmap1 cohorts pooled, at three settings. Run in this folder.
set -eu
one=../hapmap1/client1/hapmap1_100_1
two=../hapmap1/client2/hapmap1_100_2
work=$(mktemp -d)
cut -f2 $one.bim | sort > "$work/one"
cut -f2 $two.bim | sort | comm -12 "$work/one" - > "$work/common"
plink1.9 --bfile $one --bmerge $two --extract "$work/common" --make-bed --out "$work/pool" > "$work/log"
for settings in "50 5 0.2" "10 2 0.05" "20 1 0.02"; do
    # shellcheck disable=SC2086
    plink1.9 --bfile "$work/pool" --autosome --maf 0.05 --indep-pairwise $settings --out "$work/made" > "$work/log"
    echo "$settings: $(tr '\n' ' ' < "$work/made.prune.in")"
done > hapmap1.prune
rm -r "$work"
