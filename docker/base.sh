#!/bin/sh
# A base image from Debian packages alone, where no image registry is there: debootstrap, Python, and nothing that only
# installs need. Needs root, debootstrap and buildah.
#
# usage: docker/base.sh [IMAGE]      default: localhost/hanse-base:bookworm
set -eu

image=${1:-localhost/hanse-base:bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

debootstrap --variant=minbase --include=ca-certificates bookworm "$work/root" "$mirror" >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; exit 1; }
# debootstrap does not resolve what python3 needs by itself; apt does, and takes no more than that.
chroot "$work/root" apt-get install -y -qq --no-install-recommends python3-minimal python3 >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; exit 1; }
cd "$work/root"
rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* var/cache/debconf/*-old var/lib/dpkg/*-old tmp/* \
    usr/share/man usr/share/info usr/share/locale usr/share/lintian usr/lib/python3*/test
# Licences stay.
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type d -empty -delete
tar --sort=name --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" --exclude=./dev/* -cf "$work/root.tar" .
mkdir "$work/context"
mv "$work/root.tar" "$work/context/root.tar"
printf 'FROM scratch\nADD root.tar /\nCMD ["python3"]\n' >"$work/context/Dockerfile"
buildah bud --quiet --isolation=chroot --tag "$image" "$work/context"
