#!/bin/sh
# Builds Hanse's images, with buildah, podman or docker, whichever is there.
#
# usage: docker/build.sh [IMAGE...]
#        IMAGE: coordinator aggregator compensator model-registry console tools hub nats seaweedfs datapod (all of these by
#        default), or datapod-cuda, aggregator-gpu (several GB each)
#
# ENGINE     buildah, podman or docker
# BASE       image to build on; by default the digest in the Dockerfile. `BASE=local` makes one of Debian packages.
#            BUILD_BASE: for the build stage, with binutils; they are added where they are missing
# TAG        tag, and version in the labels; by default the version of the distributions
# PYTHON     a Python 3.11 with pip and hatchling
# ARCHIVES   folder to put IMAGE.tar (docker-archive) and IMAGE.sbom.json into; by default nothing is put anywhere
# SOURCE     for the label org.opencontainers.image.source
set -eu
cd "$(dirname "$0")/.."

engine=${ENGINE:-}
for candidate in buildah podman docker; do
    [ -n "$engine" ] || ! command -v "$candidate" >/dev/null || engine=$candidate
done
: "${engine:?buildah, podman or docker is needed}"
python=${PYTHON:-.venv/bin/python}
context=${CONTEXT:-build/images}
tag=${TAG:-$(sed -n 's/^version = "\(.*\)"/\1/p' services/coordinator/pyproject.toml)}
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
build_base=${BUILD_BASE:-}
base=${BASE:-$(sed -n 's/^ARG BASE=//p' docker/Dockerfile)}
images=${*:-coordinator aggregator compensator model-registry console tools hub nats seaweedfs datapod}

if [ "$base" = local ]; then
    base=localhost/hanse-base:bookworm
    case $engine in
        docker) echo "BASE=local needs buildah or podman" >&2; exit 2 ;;
        *) buildah inspect --type image "$base-build" >/dev/null 2>&1 || docker/base.sh "$base" >/dev/null ;;
    esac
    build_base=$base-build
fi
# A base by digest names it itself; of a local one the engine knows it.
case $base in
    *@*) digest=${base#*@} ;;
    *) digest=$(
        case $engine in
            buildah) buildah inspect --type image --format '{{.FromImageDigest}}' "$base" ;;
            *) "$engine" image inspect --format '{{.Id}}' "$base" ;;
        esac
    ) ;;
esac

build() { # FILE IMAGE DESCRIPTION
    set -- --file "$1" --target "$2" --tag "localhost/hanse-$2:$tag" --build-arg "IMAGE=$2" --build-arg "BASE=$base" \
        --build-arg "BUILD_BASE=${build_base:-$base}" --build-arg "BASE_DIGEST=$digest" \
        --build-arg "VERSION=$tag" --build-arg "REVISION=$revision" \
        --build-arg "SOURCE=${SOURCE:-hanse}" --build-arg "DESCRIPTION=$3" "$context"
    case $engine in
        # The healthcheck is docker's; OCI's format has no place for it.
        buildah) buildah bud --quiet --format docker --isolation "${ISOLATION:-chroot}" "$@" ;;
        podman) podman build --quiet --format docker "$@" ;;
        *) "$engine" build --quiet "$@" ;;
    esac
}

save() { # IMAGE
    mkdir -p "$ARCHIVES"
    rm -f "$ARCHIVES/$1.tar"
    case $engine in
        buildah) buildah push --quiet "localhost/hanse-$1:$tag" "docker-archive:$ARCHIVES/$1.tar:localhost/hanse-$1:$tag" ;;
        *) "$engine" save --output "$ARCHIVES/$1.tar" "localhost/hanse-$1:$tag" ;;
    esac
    "$python" docker/archive.py "$ARCHIVES/$1.tar" usr/share/doc/hanse/sbom.json opt/hanse/share/doc/hanse/sbom.json \
        >"$ARCHIVES/$1.sbom.json"
}

# shellcheck disable=SC2086
"$python" docker/wheels.py "$context" $images
for image in $images; do
    case $image in
        nats | seaweedfs) file=docker/servers.Dockerfile description=$image ;;
        *) file=docker/Dockerfile
            description=$("$python" -c 'import sys, tomllib
print(tomllib.load(open("docker/images.toml", "rb"))[sys.argv[1]]["description"])' "$image") ;;
    esac
    build "$file" "$image" "$description" >/dev/null
    [ -z "${ARCHIVES:-}" ] || save "$image"
    rm -rf "$context/wheels/$image"
    echo "localhost/hanse-$image:$tag"
done
