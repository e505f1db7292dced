# The search service: docker build -t proxysynth --build-arg VERSION=0.2.0 . ; see docs/deploy.md
FROM python:3.12-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# torch first, in a layer of its own; the CPU build is much smaller than the default one.
RUN pip install "torch>=2.6,<2.14" --index-url https://download.pytorch.org/whl/cpu

# The version that the service reports; there is no git history here to read it from.
ARG VERSION=
COPY . /src
RUN SETUPTOOLS_SCM_PRETEND_VERSION="$VERSION" pip install "/src[serve,pretrained,faiss]" \
    && useradd --create-home --uid 1000 proxysynth
USER 1000
WORKDIR /data
EXPOSE 8000

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/api/health', timeout=4)"]

ENTRYPOINT ["proxysynth"]
CMD ["serve", "/data/shop.index", "--host", "0.0.0.0", "--access-log", "-"]
