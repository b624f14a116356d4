# Two images from one file:
#   docker build --target dashboard -t warpboard-dashboard .
#   docker build --target worker    -t warpboard-worker .
# The worker stands on NVIDIA's PyTorch container, whose torch, triton and numpy stay as they are.
ARG BASE_IMAGE=nvcr.io/nvidia/pytorch:26.05-py3
ARG DASHBOARD_BASE_IMAGE=python:3.12-slim

FROM ${DASHBOARD_BASE_IMAGE} AS dashboard
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    WARPBOARD_DATA=/data PATH=/opt/warpboard/venv/bin:$PATH
WORKDIR /opt/warpboard
COPY requirements/app.lock requirements/app.lock
RUN python3 -m venv venv && venv/bin/pip install --no-cache-dir -r requirements/app.lock
COPY core core
COPY captures captures
COPY analysis analysis
COPY db db
COPY workloads workloads
COPY worker worker
COPY app app
COPY .streamlit .streamlit
COPY LICENSE LICENSE
# A new volume takes the owner of the folder it is first mounted over: /redis and /worker are Redis's and the worker's.
RUN useradd --create-home --uid 10001 warpboard && mkdir -p -m 0700 /data /token /secrets /redis /worker \
    && chown warpboard:warpboard /data /token /secrets /redis /worker
USER warpboard
VOLUME ["/data", "/token"]
EXPOSE 8501 8502
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=12 \
    CMD python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=2)"
CMD ["python3", "-m", "app.cli", "up", "--host", "0.0.0.0", "--port", "8501", "--workers-host", "0.0.0.0", "--dashboard-only"]

FROM ${BASE_IMAGE} AS worker
# TORCH is for a base image without PyTorch (a trial on the CPU); it stays empty on NVIDIA's image.
ARG TORCH=""
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    WARPBOARD_DATA=/data PATH=/opt/warpboard/venv/bin:$PATH
WORKDIR /opt/warpboard
COPY requirements/worker.lock requirements/worker.lock
# The venv sees the image's packages and holds only what the worker adds. It is filled by the image's own
# pip, because NVIDIA's image has no ensurepip; its constraint file is for its own environment, not for
# this one. The build stops when torch is missing, or when torch, triton or numpy came a second time.
RUN python3 -m venv --without-pip --system-site-packages venv \
    && PIP_CONSTRAINT= python3 -m pip --python venv/bin/python install --no-cache-dir \
         -r requirements/worker.lock \
    && if [ -n "$TORCH" ]; then \
         python3 -m pip --python venv/bin/python install --no-cache-dir "$TORCH" numpy; \
       elif ls -d venv/lib/python3*/site-packages/torch venv/lib/python3*/site-packages/triton \
            venv/lib/python3*/site-packages/numpy 2>/dev/null; then \
         echo "the lock file replaces packages of the base image" >&2; exit 1; fi \
    && venv/bin/python -c "import importlib.util as u, sys; \
sys.exit(None if u.find_spec('torch') else 'the base image has no PyTorch: build with TORCH=torch==...')"
COPY core core
COPY captures captures
COPY workloads workloads
COPY worker worker
COPY LICENSE LICENSE
# HOME also for the worker that begins as root (docker-compose.yml): compilers keep their caches there.
RUN useradd --create-home --uid 10001 warpboard && mkdir -p -m 0700 /data && chown warpboard:warpboard /data
ENV HOME=/home/warpboard
USER warpboard
VOLUME ["/data"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=90s --retries=6 CMD python3 -m worker.health
CMD ["python3", "-m", "worker"]
