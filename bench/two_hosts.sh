#!/bin/bash
# Two hosts on one machine: dashboard, ingest and Redis in one network namespace, the worker in another,
# each with its own data folder; from a token to a comparison. As root; needs iproute2 and redis-server.
#
#   bench/two_hosts.sh [WORK_DIR]      PYTHON and WARPBOARD_PYTHON name the interpreters; by default python3
#
# The namespaces share no loopback: what passes between the two passes over the virtual cable.
set -euo pipefail
P=$(cd "$(dirname "$0")/.." && pwd -P)
W=${1:-$(mktemp -d)}
mkdir -p "$W"
W=$(realpath "$W")
PY=${PYTHON:-python3}
export WARPBOARD_PYTHON=${WARPBOARD_PYTHON:-$PY} PYTHONPATH=$P no_proxy='*'
DASH=wbdash$$ WORK=wbwork$$
in_dash="ip netns exec $DASH" in_work="ip netns exec $WORK"
pids=()
finish() {
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || :; done
  wait 2>/dev/null || :
  ip netns del $DASH 2>/dev/null || :
  ip netns del $WORK 2>/dev/null || :
}
trap finish EXIT
fail() { echo "FAIL  $1" >&2; tail -5 "$W"/*.log >&2 || :; exit 1; }
until_ok() { for _ in $(seq "$1"); do if "${@:2}" >/dev/null 2>&1; then return 0; fi; sleep 0.5; done; return 1; }

ip netns add $DASH
ip netns add $WORK
ip link add wb$$a netns $DASH type veth peer name wb$$b netns $WORK
ip -n $DASH addr add 10.78.0.1/24 dev wb$$a
ip -n $WORK addr add 10.78.0.2/24 dev wb$$b
for n in $DASH $WORK; do ip -n $n link set lo up; done
ip -n $DASH link set wb$$a up
ip -n $WORK link set wb$$b up
echo "ok    two network namespaces, one cable"

cd "$P"
mkdir -p "$W/redis"
printf 'bind 10.78.0.1 127.0.0.1\nrequirepass secret\nappendonly yes\ndir %s\n' "$W/redis" >"$W/redis.conf"
$in_dash redis-server "$W/redis.conf" >"$W/redis.log" 2>&1 &
pids+=($!)
printf 'redis://:secret@127.0.0.1:6379/0\n' >"$W/broker.url"
printf 'redis://:secret@10.78.0.1:6379/0\n' >"$W/far.url"
chmod 600 "$W"/*.url
export WARPBOARD_BROKER_FILE=$W/broker.url
dash() { $in_dash env WARPBOARD_DATA="$W/dash" "$PY" -m app.cli "$@"; }
$in_dash env WARPBOARD_DATA="$W/dash" "$PY" -m app.cli up --workers-host 10.78.0.1 --dashboard-only --no-demo >"$W/dashboard.log" 2>&1 &
pids+=($!)
$in_dash env WARPBOARD_DATA="$W/dash" "$PY" -m app.ingest_worker >"$W/ingest.log" 2>&1 &
pids+=($!)
until_ok 240 $in_work curl -fs --noproxy '*' --max-time 5 http://10.78.0.1:8502/api/v1/health || fail "the dashboard across the cable"
echo "ok    the dashboard answers across the cable"

dash token second-host 2>/dev/null >"$W/worker.token"
chmod 600 "$W/worker.token"
echo "wrong" >"$W/wrong.token"
worker=($in_work env -u WARPBOARD_BROKER_FILE "$PY" -m worker --broker-file "$W/far.url"
  --dashboard http://10.78.0.1:8502 --data "$W/work" --gpu cpu)
if "${worker[@]}" --token-file "$W/wrong.token" >"$W/wrong.log" 2>&1; then fail "a wrong token was taken"; fi
grep -q "check --token-file" "$W/wrong.log" || fail "a wrong token is not named"
echo "ok    a wrong token is refused, and the worker says so"

job=(submit decode --set preset=tiny --gpu cpu --profilers trace --json)
# The very same job twice: what is proved is the way, not a speed.
first=$(dash "${job[@]}" 2>/dev/null | "$PY" -c "import json,sys; print(json.load(sys.stdin)['runs'][0]['run_id'])")
"${worker[@]}" --token-file "$W/worker.token" >"$W/worker.log" 2>&1 &
pids+=($!)
dash "${job[@]}" --wait >"$W/second.json" 2>"$W/second.log" || fail "the second job"
second=$("$PY" -c "import json,sys; r=json.load(open(sys.argv[1]))['runs'][0]; assert r['status']=='done', r; print(r['run_id'])" "$W/second.json")
status_is() { dash show "$1" --json 2>/dev/null | grep -q "\"status\": *\"$2\""; }
until_ok 120 status_is "$first" done || fail "the first job"
echo "ok    two jobs, one submitted before the worker was there: both done"

ip -n $DASH link set wb$$a down
third=$(dash "${job[@]}" --set batch=2 2>/dev/null | "$PY" -c "import json,sys; print(json.load(sys.stdin)['runs'][0]['run_id'])")
sleep 8
ip -n $DASH link set wb$$a up
until_ok 240 status_is "$third" done || fail "the job submitted while the cable was out"
echo "ok    a job submitted while the cable was out is done after it is back"

dash compare "$first" "$second" --format json >"$W/compare.json" || fail "compare"
"$PY" - "$W/compare.json" <<'X'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["ratio"] > 0 and d["comparable"] is True and d["kernels"], d
print(f"ok    compare: the second takes {d['ratio']:.2f} of the first's latency; verdict {d['verdict']}")
print(json.dumps({"bench": "two_hosts", "num_jobs": 3, "ratio": d["ratio"], "verdict": d["verdict"]}))
X
