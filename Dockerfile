# ckvc on Debian 12, by the package that `make deb` builds: docker build -t ckvc . && docker run --rm -v "$PWD:/data" ckvc help
# Untried as an image: where it was written no container could be run. Its commands were, each stage in a fresh Debian 12 (debootstrap).
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends make dpkg-dev
COPY . /src
WORKDIR /src
RUN make setup && make -j"$(nproc)" deb

FROM debian:12-slim
COPY --from=build /src/build/release/deb/ckvc_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/ckvc_*.deb && rm -rf /tmp/ckvc_*.deb /var/lib/apt/lists/*
WORKDIR /data
ENTRYPOINT ["ckvc"]
