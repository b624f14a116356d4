#!/usr/bin/env bash
# Measure the matrix behind the example data and docs/results.md on this GPU: one bundle a cell.
#
#   bench/measure_matrix.sh OUT_DIR [PART...]
#
# PART: pairs compiled eager scaling training counters; none named is all of them.
# WARPBOARD_PYTHON: the Python that has torch (python3). MATRIX_GPUS: ordinals of the GPUs that share
# the work ("0"); they should be of one model. MATRIX_JOBS: programs that start up side by side on
# each (6); they measure one after another (WARPBOARD_GPU_LOCK), so the times stand. A cell that is
# there already is left alone: the same command goes on after an interruption. MATRIX_ONLY: an
# extended regular expression of the names to measure (all).
set -u
cd "$(dirname "$0")/.." || exit 3
python=${WARPBOARD_PYTHON:-python3}
out=${1:?usage: bench/measure_matrix.sh OUT_DIR [PART...]}
shift
mkdir -p "$out"
parts=${*:-pairs compiled eager scaling training counters}
export OUT="$out" PYTHON="$python" MATRIX_GPUS="${MATRIX_GPUS:-0}"
jobs_file="$out/jobs.txt"
: >"$jobs_file"

job() { echo "$*" >>"$jobs_file"; }

pairs() {  # measured on more than one model of GPU: what projections are checked against
  for mode in none reduce-overhead max-autotune; do
    job "decode-2-layers-$mode decode --profilers nsys --repeats 3 --set layers=2 --set compile=$mode"
  done
  job "decode-2-layers-graphs-skipped decode --profilers nsys --set layers=2 --set compile=reduce-overhead --set kv_cache=argument"
  job "transformer-small-train-bf16 transformer --profilers nsys,memory --set preset=small --set mode=train_step --set dtype=bf16"
  job "transformer-xl-train-fp32-16GiB transformer --profilers memory --set preset=xl --set mode=train_step --set memory_cap_gib=16"
}

compiled() {
  for mode in max-autotune reduce-overhead default; do
    job "decode-1-layer-$mode decode --profilers nsys --repeats 3 --set preset=llama-7b-layer --set compile=$mode"
  done
  for mode in default; do
    job "transformer-large-forward-bf16-$mode transformer --profilers nsys --set preset=large --set mode=forward --set seq_len=256 --set batch=32 --set dtype=bf16 --set compile=$mode"
    job "transformer-large-train-bf16-$mode transformer --profilers nsys --set preset=large --set mode=train_step --set seq_len=256 --set batch=8 --set dtype=bf16 --set compile=$mode"
  done
  for length in 256 1024 4096 16384; do
    job "attention-compiled-dim-64-length-$length attention --set implementation=compiled --set mode=forward_backward --set dtype=fp32 --set batch=8 --set heads=1 --set head_dim=64 --set seq_len=$length"
  done
}

eager() {
  job "decode-1-layer-none decode --profilers nsys,memory --repeats 5 --set preset=llama-7b-layer"
  job "decode-1-layer-graph decode --profilers nsys --repeats 3 --set preset=llama-7b-layer --set cuda_graph=on"
  job "decode-7b-none decode --profilers nsys --set preset=llama-7b"
  job "decode-7b-graph decode --profilers nsys --set preset=llama-7b --set cuda_graph=on"
  job "decode-1-layer-graphs-skipped decode --profilers nsys --set preset=llama-7b-layer --set compile=reduce-overhead --set kv_cache=argument"
  job "prefill-1-layer-length-1024 prefill --profilers nsys --set seq_len=1024"
  job "generate-1-layer-none generate --profilers nsys --set new_tokens=32"
  job "generate-1-layer-graph generate --profilers nsys --set new_tokens=32 --set cuda_graph=on"
  job "transformer-large-forward-bf16-none transformer --profilers nsys --set preset=large --set mode=forward --set seq_len=256 --set batch=32 --set dtype=bf16"
  job "transformer-large-train-bf16-none transformer --profilers nsys --set preset=large --set mode=train_step --set seq_len=256 --set batch=8 --set dtype=bf16"
  job "transformer-small-train-bf16-batch-8 transformer --profilers nsys,memory,trace --set preset=small --set mode=train_step --set batch=8 --set dtype=bf16"
  for name in route route_sort route_fused; do
    job "moe-$name moe_routing --profilers nsys --set implementation=$name"
  done
}

scaling() {
  for length in 256 512 1024 2048 4096 8192 16384; do
    for name in naive sdpa triton; do
      job "attention-$name-fp16-length-$length attention --set implementation=$name --set mode=forward --set seq_len=$length"
    done
  done
  for dim in 16 32 64 128; do
    for length in 256 1024 4096 8192 16384; do
      job "attention-naive-dim-$dim-length-$length attention --set implementation=naive --set mode=forward_backward --set dtype=fp32 --set batch=8 --set heads=1 --set head_dim=$dim --set seq_len=$length"
    done
  done
}

training() {
  for size in small medium large xl 2.7B; do
    for length in 128 256 512 1024; do
      job "transformer-$size-forward-fp32-length-$length transformer --profilers nsys --set preset=$size --set mode=forward --set seq_len=$length"
      # 24 GiB: what an RTX 3090 or 4090 holds; the larger cells run out of memory on purpose
      job "transformer-$size-train-fp32-24GiB-length-$length transformer --set preset=$size --set mode=train_step --set seq_len=$length --set memory_cap_gib=24"
    done
  done
  for size in small medium large xl 2.7B; do
    job "transformer-$size-forward-bf16-length-512 transformer --set preset=$size --set mode=forward --set seq_len=512 --set dtype=bf16"
  done
  job "transformer-xl-train-fp32-24GiB-memory transformer --profilers memory --set preset=xl --set mode=train_step --set memory_cap_gib=24"
}

counters() {
  job "decode-1-layer-none-counters decode --profilers nsys,ncu --set preset=llama-7b-layer"
  job "decode-1-layer-max-autotune-counters decode --profilers nsys,ncu --set preset=llama-7b-layer --set compile=max-autotune"
  for tile in 16 64 128; do
    job "gemm-triton-tile-$tile gemm --profilers ncu --set implementation=triton --set m=16 --set tile_m=$tile"
  done
  job "gemm-cublas gemm --profilers ncu --set m=16"
  job "attention-triton-counters attention --profilers ncu --set implementation=triton --set mode=forward"
  job "attention-naive-counters attention --profilers ncu --set implementation=naive --set mode=forward"
}

for part in $parts; do "$part"; done
run_job() {
  set -f
  name=${1%% *}
  [ -f "$OUT/$name/manifest.json" ] && return
  read -ra gpus <<<"$MATRIX_GPUS"
  gpu=${gpus[$((SLOT % ${#gpus[@]}))]}
  # ncu keeps other ncu off by a file in TMPDIR: one a GPU, not one a host
  export WARPBOARD_GPU_LOCK="$OUT/gpu-$gpu.lock" TMPDIR="$OUT/gpu-$gpu.tmp"
  mkdir -p "$TMPDIR"
  # shellcheck disable=SC2086
  "$PYTHON" -m worker.run_bundle ${1#* } --gpu "$gpu" --out "$OUT/$name" >"$OUT/$name.txt" 2>&1
  echo "$name: ended with $? on GPU $gpu" >&2
}
export -f run_job
programs=$((${MATRIX_JOBS:-6} * $(wc -w <<<"$MATRIX_GPUS")))
awk -v names="${MATRIX_ONLY:-.}" '$1 ~ names' "$jobs_file" | tr '\n' '\0' |
  xargs -0 -n 1 -P "$programs" --process-slot-var=SLOT bash -c 'run_job "$1"' _
