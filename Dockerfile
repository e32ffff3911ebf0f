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
        --no-cache --compile-bytecode --extra postgres --python "$(command -v python3)" \
    && cd /opt/penstock/lib/python3*/site-packages \
    && rm -r pyspark/jars/connect-repl pyarrow/include pyarrow/tests

FROM ${BASE}
COPY --from=build /opt/penstock /opt/penstock
# Spark needs a user with a name; a new volume at /state or /work belongs to that user.
RUN echo 'penstock:x:1000:1000::/home/penstock:/bin/sh' >> /etc/passwd \
    && mkdir -p /home/penstock /work /state && chown 1000:1000 /home/penstock /work /state
# A container ends with its command, so that no Spark could stay for the next one. Where the base
# has a user 1000 of its own, its home is not ours.
ENV PATH=/opt/penstock/bin:$PATH HOME=/home/penstock PENSTOCK_HOME=/work/.penstock PENSTOCK_DAEMON=0
USER 1000:1000
# Spark starts in half the time with the archive of its classes, which a run makes after its end,
# when a container is gone.
RUN PENSTOCK_HOME=/tmp/home penstock doctor --fix && rm -rf /tmp/home
WORKDIR /work
ENTRYPOINT ["penstock"]
