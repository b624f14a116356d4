#!/usr/bin/env bash
# Measure jobs over several GPUs of this host: all-reduce by size, a transformer under ddp, fsdp2 and
# tensor parallel at 1 and N ranks (strong and weak scaling), and a planted straggler. One bundle a
# job; the most telling ones have nsys and trace passes of all ranks.
#
#   bench/measure_ranks.sh OUT_DIR [NAME]     NAME: an extended regular expression of the jobs
#
# WARPBOARD_PYTHON: the Python that has torch (python3). RANKS: GPUs of a parallel job (2).
# RANKS_DEVICE=cpu tries the script itself, at small sizes. RANKS_LIMIT_S: the whole run (360); what
# would start in its last 45 s is left out, and said. RANKS_JOBS: programs that start up side by side
# (4); they measure one after another (WARPBOARD_GPU_LOCK). What is there already is left alone.
set -u
cd "$(dirname "$0")/.." || exit 3
out=${1:?usage: bench/measure_ranks.sh OUT_DIR [NAME]}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export OUT="$out" PYTHON="${WARPBOARD_PYTHON:-python3}" WARPBOARD_GPU_LOCK="$out/gpus.lock"
export LIMIT_S="${RANKS_LIMIT_S:-360}" STARTED_S="$SECONDS" JOB_LIMIT_S="${RANKS_JOB_LIMIT_S:-120}"
START_AT=$(date +%s)
export START_AT
n=${RANKS:-2}
jobs_file="$out/jobs.txt"
: >"$jobs_file"

job() { echo "$*" >>"$jobs_file"; }

train="--set mode=train_step --set dtype=bf16 --set attention=sdpa --set seq_len=512"
if [ "${RANKS_DEVICE:-}" = cpu ]; then
  train="--gpu cpu --set preset=tiny --set mode=train_step --set iterations=5"
  reduce="--gpu cpu --set preset=tiny"
else
  reduce="--set iterations=10"
fi
size() {  # a preset's own setting; 25 heads cannot be halved, 20 can
  [ "${RANKS_DEVICE:-}" = cpu ] && return
  if [ "$1" = xl ]; then echo "--set preset=xl --set heads=20 --set batch=8"; else echo "--set preset=$1 --set batch=16"; fi
}

profiled="--profilers nsys,trace"
job "allreduce-$n allreduce $profiled --set gpus=$n $reduce"
job "straggler-ddp-medium-$n transformer $profiled $train $(size medium) --set gpus=$n --set parallel=ddp --set straggler_rank=1 --set straggler_ms=12"
for way in ddp fsdp2 tensor; do
  job "$way-medium-strong-$n transformer $profiled $train $(size medium) --set gpus=$n --set parallel=$way"
done
for preset in medium small large xl; do
  for way in ddp fsdp2 tensor; do
    job "$way-$preset-strong-1 transformer $train $(size $preset) --set gpus=1 --set parallel=$way"
    [ "$preset" = medium ] || job "$way-$preset-strong-$n transformer $train $(size $preset) --set gpus=$n --set parallel=$way"
    [ "$way" = tensor ] || job "$way-$preset-weak-$n transformer $train $(size $preset) --set gpus=$n --set parallel=$way --set scaling=weak"
  done
done
for preset in small large xl; do
  for way in ddp fsdp2 tensor; do
    job "$way-$preset-profiled-$n transformer $profiled $train $(size $preset) --set gpus=$n --set parallel=$way --set iterations=5"
  done
done

run_job() {
  set -f
  name=${1%% *}
  [ -f "$OUT/$name/manifest.json" ] && return
  left=$((LIMIT_S - ($(date +%s) - START_AT)))
  if [ "$left" -lt 45 ]; then echo "$name: left out, $left s are left" >&2; return; fi
  rm -rf "${OUT:?}/$name"
  # shellcheck disable=SC2086
  timeout --signal=INT --kill-after=10 "$left" "$PYTHON" -m worker.run_bundle ${1#* } \
    --timeout "$JOB_LIMIT_S" --out "$OUT/$name" >"$OUT/$name.txt" 2>&1
  echo "$name: ended with $? after $(($(date +%s) - START_AT)) s" >&2
}
export -f run_job
grep -E "^${2:-.}" "$jobs_file" | tr '\n' '\0' |
  xargs -0 -n 1 -P "${RANKS_JOBS:-4}" bash -c 'run_job "$1"' _
"$PYTHON" bench/measure_ranks_table.py "$OUT"
