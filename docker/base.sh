#!/bin/sh
# A base image from Debian packages alone, where no image registry is there: debootstrap, Python, and nothing that only
# installs need. Needs root, debootstrap and buildah.
#
# usage: docker/base.sh [IMAGE]      default: localhost/hanse-base:bookworm; beside it IMAGE-build, with binutils
set -eu

image=${1:-localhost/hanse-base:bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/context"
printf 'FROM scratch\nADD root.tar /\nCMD ["python3"]\n' >"$work/context/Dockerfile"

quietly() {
    "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
}

build() { # TAG
    cp -a "$work/root" "$work/clean"
    (
        cd "$work/clean"
        rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* var/cache/debconf/*-old var/lib/dpkg/*-old tmp/* \
            usr/share/man usr/share/info usr/share/locale usr/share/lintian usr/lib/python3*/test
        # Licences stay.
        find usr/share/doc -type f ! -name copyright -delete
        find usr/share/doc -type d -empty -delete
        tar --sort=name --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" --exclude='./dev/*' \
            -cf "$work/context/root.tar" .
    )
    rm -rf "$work/clean"
    buildah bud --quiet --isolation=chroot --tag "$1" "$work/context"
}

quietly debootstrap --variant=minbase --include=ca-certificates bookworm "$work/root" "$mirror"
# debootstrap does not resolve what python3 needs by itself; apt does, and takes no more than that.
quietly chroot "$work/root" apt-get install -y -qq --no-install-recommends python3
build "$image"
quietly chroot "$work/root" apt-get install -y -qq --no-install-recommends binutils
build "$image-build"
