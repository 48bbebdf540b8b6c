# Two images:
#   docker build -t client-proxy .                        the edge: the proxy alone, no shell, no playground
#   docker build -t client-proxy:dev --target dev .       the playground, to try things out
#
# Plain instructions only, for every builder: neither cache mounts nor a frontend to be fetched. Dependencies are a
# layer of their own, built again when Cargo.toml, Cargo.lock or .cargo change.

# The version of rust-toolchain.toml, which is not copied: rustup would fetch what only developers need.
# The Debian is that of the images below, whose C library the program runs with.
FROM rust:1.95.0-trixie AS source
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
# How jemalloc is built.
COPY .cargo .cargo
# The gRPC service, and what makes code of it.
COPY build.rs build.rs
COPY proto proto
# Stand-ins for our own code: nothing up to its COPY depends on it.
RUN mkdir src benches \
    && touch src/lib.rs benches/load.rs benches/routing.rs benches/table.rs \
    && echo 'fn main() {}' > src/main.rs \
    && cargo fetch --locked

FROM source AS build-edge
RUN cargo build --locked --offline --profile dist --no-default-features
COPY src src
# COPY keeps times, and cargo goes by them: our code must be newer than its stand-ins.
RUN touch src/lib.rs src/main.rs \
    && cargo build --locked --offline --profile dist --no-default-features
# It is the program, it takes the image's configuration, and the playground is not in it.
COPY config/edge.toml config/edge.toml
RUN export E2B_DOMAIN=sandbox.example.com E2B_API_URL=http://127.0.0.1:3000 E2B_API_KEY=none ADMIN_TOKEN=none \
    && target/dist/client-proxy check --config config/edge.toml > /dev/null \
    && ! target/dist/client-proxy dev --help 2> /dev/null

FROM source AS build-dev
RUN cargo build --locked --offline --release
COPY src src
RUN touch src/lib.rs src/main.rs \
    && cargo build --locked --offline --release

# The playground: sandboxes are processes in the container, so they get a shell, a home and /tmp. Resetting the
# connections of a paused sandbox takes pidfd_getfd(2), which Docker allows with this capability only. All of it
# listens on loopback: share the network to reach it.
#   docker run --rm --cap-add SYS_PTRACE client-proxy:dev --demo
#   docker run --rm --cap-add SYS_PTRACE --network host client-proxy:dev
FROM debian:trixie-slim AS dev
LABEL org.opencontainers.image.title="client-proxy playground" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="0.1.0"
COPY --from=build-dev /build/target/release/client-proxy /usr/local/bin/client-proxy
COPY LICENSE /usr/share/doc/client-proxy/LICENSE
RUN install -d -o 65532 -g 65532 /home/dev
ENV HOME=/home/dev
WORKDIR /home/dev
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/client-proxy", "dev"]

# The last stage is what `docker build` makes unasked. `cc` has what the program is linked with (libc, libm,
# libgcc_s), certificates to trust, and no shell. The user is a number, so that a platform can see that it is not root.
FROM gcr.io/distroless/cc-debian13:nonroot AS edge
LABEL org.opencontainers.image.title="client-proxy" \
    org.opencontainers.image.description="Edge reverse proxy for AI-agent sandboxes: finds, wakes, holds, forwards" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="0.1.0"
COPY --from=build-edge /build/target/dist/client-proxy /usr/local/bin/client-proxy
COPY LICENSE /usr/share/doc/client-proxy/LICENSE
# Runs with four variables; or put another file in its place.
COPY config/edge.toml /etc/client-proxy/config.toml
USER 65532:65532
# Traffic; health and metrics; admin pages.
EXPOSE 3002 3003 3004
# A drain; it takes longer than the 10 s that Docker waits by itself: see --stop-timeout.
STOPSIGNAL SIGTERM
# Asks http://127.0.0.1:3003/health. With another `health.listen`, say so with --url.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
    CMD ["/usr/local/bin/client-proxy", "health"]
ENTRYPOINT ["/usr/local/bin/client-proxy"]
CMD ["--config", "/etc/client-proxy/config.toml"]
