# One image for `costada mcp --http`, the Dask scheduler and the evaluation workers of compose.yaml.
# Python packages come from deploy/requirements.lock, by their hashes.
# The digest is that of 25 August 2026, with Python 3.12.14; docs/how-to/deploy.md says how to take a newer one.

ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE:-python:3.12-slim-bookworm@sha256:0f5b26b9518d002b6173fd61daad821fa340635ebfec5bba471013f9ca114579} AS base

FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN python -m venv /opt/costada
ENV PATH=/opt/costada/bin:$PATH
COPY deploy/requirements.lock deploy/requirements.lock
RUN pip install --require-hashes --no-deps --requirement deploy/requirements.lock
COPY . .
RUN pip install --no-deps --no-build-isolation . && pip uninstall --yes setuptools \
    && python -m compileall -q /opt/costada/lib

FROM base
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 costada \
    && install -d -o costada -g costada /data /certificates
COPY --from=build /opt/costada /opt/costada
ENV PATH=/opt/costada/bin:$PATH PYTHONUNBUFFERED=1
USER costada
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/live', timeout=4)"]
ENTRYPOINT ["costada"]
CMD ["mcp", "--help"]
