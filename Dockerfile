# The image of the router: one static binary, certificate authorities, and nothing else. Build it
# from a checkout with its history:
#
#	docker build -t deltarouter .
#
# tools/release writes the same files and settings without Docker.
FROM --platform=$BUILDPLATFORM node:22-slim AS engine
WORKDIR /src
COPY tools/jsengine.sh tools/
COPY pkg/plugins/js/engine pkg/plugins/js/engine
RUN sh tools/jsengine.sh && test -f pkg/plugins/js/engine/quickjs.wasm

FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
# BuildKit sets these two; a default here would override it.
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=
ARG SOURCE_DATE_EPOCH=
WORKDIR /src
COPY . .
COPY --from=engine /src/pkg/plugins/js/engine/quickjs.wasm pkg/plugins/js/engine/
RUN go -C tools/release run . files -platforms "$TARGETOS/$TARGETARCH" -version "$VERSION" -out /image

FROM scratch
COPY --from=build /image/etc /etc
COPY --from=build /image/tmp /tmp
COPY --from=build /image/usr /usr
COPY --from=build --chown=65532:65532 /image/var/lib/deltarouter /var/lib/deltarouter
LABEL org.opencontainers.image.title="deltarouter" \
	org.opencontainers.image.source="https://github.com/deltarouter/deltarouter" \
	org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin
ENV DELTAROUTER_CONFIG=/etc/deltarouter/config.yaml
USER 65532:65532
WORKDIR /var/lib/deltarouter
VOLUME /var/lib/deltarouter
ENTRYPOINT ["/usr/local/bin/router"]
CMD ["run"]
