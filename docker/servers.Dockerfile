# NATS and SeaweedFS: the static binary and nothing else. For machines without the public images of the two.
ARG BASE=debian:bookworm-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM ${BASE} AS unpacked
RUN command -v python3 >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3; }
ARG IMAGE
COPY tools /build/tools
COPY wheels/${IMAGE} /build/wheels
RUN set -eu; \
    PIP="python3 /build/tools/pip.whl/pip --disable-pip-version-check --no-cache-dir install"; \
    PIP="$PIP --quiet --no-index --no-compile --no-deps --root-user-action=ignore"; \
    $PIP --target /build/wheel /build/wheels/*.whl; \
    $PIP --target /build/describe /build/tools/describe/*.whl; \
    mkdir -p /root-of-image/usr/share/doc/hanse /root-of-image/tmp /root-of-image/data; \
    PYTHONPATH=/build/describe python3 /build/tools/describe.py --image "${IMAGE}" --wheel /build/wheel \
        --binary /root-of-image --sbom /root-of-image/usr/share/doc/hanse/sbom.json; \
    chmod 1777 /root-of-image/tmp; chown 65532:65532 /root-of-image/data

FROM scratch AS server
ARG IMAGE
ARG VERSION
ARG REVISION
ARG SOURCE
COPY --from=unpacked /root-of-image /
ENV PATH=/ HOME=/tmp
LABEL org.opencontainers.image.title="hanse-${IMAGE}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
STOPSIGNAL SIGTERM

# Its own /healthz is on the monitoring port; there is no shell or client here that could ask it.
FROM server AS nats
EXPOSE 4222 6222 7422 8222 9222
ENTRYPOINT ["/nats-server"]

FROM server AS seaweedfs
EXPOSE 8333
ENTRYPOINT ["/weed"]
