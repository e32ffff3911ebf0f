# Penstock as an image. To build and to run it:
#
#   docker build -t penstock .
#   docker run --rm -v "$PWD:/work" penstock run shop.yaml
#
# BASE is any image with Python 3.11 to 3.13, pip and /bin/sh. Java comes with the packages.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
COPY pyproject.toml uv.lock README.md /src/
COPY src /src/src
RUN python3 -m pip install --no-cache-dir --root-user-action=ignore "uv>=0.13,<0.14" \
    && cd /src \
    && UV_PROJECT_ENVIRONMENT=/opt/penstock python3 -m uv sync --locked --no-dev --no-editable \
        --no-cache --compile-bytecode --extra postgres --python "$(command -v python3)"

FROM ${BASE}
COPY --from=build /opt/penstock /opt/penstock
# Spark needs a user with a name.
RUN echo 'penstock:x:1000:1000::/home/penstock:/bin/sh' >> /etc/passwd \
    && mkdir -p /home/penstock /work && chown 1000:1000 /home/penstock /work
# A container ends with its command, so that no Spark could stay for the next one.
ENV PATH=/opt/penstock/bin:$PATH PENSTOCK_HOME=/work/.penstock PENSTOCK_DAEMON=0
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["penstock"]
