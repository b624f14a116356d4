#!/usr/bin/env bash
# Measure the matrix behind the example data and docs/results.md on this GPU: one bundle a cell.
#
#   bench/measure_matrix.sh OUT_DIR [PART...]
#
# PART: pairs compiled eager scaling training counters sections advice steps lengths
#   quantised again; none named is
# all of them. `advice` holds runs and the changes of them that `warpboard advise` predicts.
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
parts=${*:-pairs compiled eager scaling training counters sections advice steps lengths quantised again}
export OUT="$out" PYTHON="$python" MATRIX_GPUS="${MATRIX_GPUS:-0}"
jobs_file="$out/jobs.txt"
: >"$jobs_file"

job() { echo "$*" >>"$jobs_file"; }

# A run with a profile, and a change of it, by their name: base NAME JOB; change NAME WHAT JOB [OPTIONS]
base() { job "$1-base $2 --repeats 3 --profilers nsys"; }
change() { job "$1-$2 $3 --repeats 3 ${4:-}"; }

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

sections() {  # Nsight Compute's sections of the largest kernels: tensor-core work, waves, hit rates, warp states
  job "decode-1-layer-none-sections decode --profilers nsys,ncu --ncu-set full --set preset=llama-7b-layer"
  job "prefill-1-layer-sections prefill --profilers nsys,ncu --ncu-set full --set preset=llama-7b-layer --set seq_len=1024"
  job "transformer-small-forward-fp32-sections transformer --profilers nsys,ncu --ncu-set full --set preset=small --set mode=forward"
  job "transformer-small-train-bf16-sections transformer --profilers nsys,ncu --ncu-set full --set preset=small --set mode=train_step --set dtype=bf16"
  job "transformer-large-forward-bf16-sections transformer --profilers nsys,ncu --ncu-set full --set preset=large --set mode=forward --set dtype=bf16"
  for tiles in 128x128 64x128 64x64 32x64; do  # m and n as well: 17, 34 and more blocks
    for m in 128 256; do
      job "gemm-tiles-$tiles-m-$m gemm --profilers ncu --set implementation=triton --set m=$m --set n=2176 --set tile_m=${tiles%x*} --set tile_n=${tiles#*x}"
    done
  done
}

advice() {
  of="decode --set preset=llama-7b-layer --set context=1024"
  base advice-decode1 "$of"
  change advice-decode1 graph "$of" "--set cuda_graph=on"
  change advice-decode1 default "$of" "--set compile=default"
  change advice-decode1 reduce "$of" "--set compile=reduce-overhead"
  change advice-decode1 batch4 "$of" "--set batch=4"
  of="decode --set preset=llama-7b-layer --set layers=8 --set batch=16 --set context=2048"
  base advice-decode8 "$of"
  change advice-decode8 graph "$of" "--set cuda_graph=on"
  change advice-decode8 autotune "$of" "--set compile=max-autotune"
  change advice-decode8 batch32 "${of/batch=16/batch=32}"
  of="prefill --set preset=llama-7b-layer --set layers=4 --set seq_len=2048 --set attention=naive"
  base advice-prefill "$of"
  change advice-prefill sdpa "${of/attention=naive/attention=sdpa}"
  change advice-prefill default "$of" "--set compile=default"
  change advice-prefill batch2 "$of" "--set batch=2"
  of="transformer --set preset=small --set mode=forward --set dtype=bf16 --set batch=4 --set seq_len=256"
  base advice-fwd-small "$of"
  change advice-fwd-small reduce "$of" "--set compile=reduce-overhead"
  change advice-fwd-small default "$of" "--set compile=default"
  change advice-fwd-small batch16 "${of/batch=4/batch=16}"
  of="transformer --set preset=large --set mode=forward --set dtype=fp32 --set batch=8 --set seq_len=512"
  base advice-fwd-large "$of"
  change advice-fwd-large tf32 "${of/dtype=fp32/dtype=tf32}"
  change advice-fwd-large bf16 "${of/dtype=fp32/dtype=bf16}"
  change advice-fwd-large default "$of" "--set compile=default"
  change advice-fwd-large batch16 "${of/batch=8/batch=16}"
  of="transformer --set preset=medium --set mode=train_step --set dtype=fp32 --set batch=8 --set seq_len=512"
  base advice-train-fp32 "$of"
  change advice-train-fp32 bf16 "${of/dtype=fp32/dtype=bf16}"
  change advice-train-fp32 tf32 "${of/dtype=fp32/dtype=tf32}"
  change advice-train-fp32 fused "$of" "--set fused_optimizer=on"
  change advice-train-fp32 default "$of" "--set compile=default"
  of="transformer --set preset=large --set mode=train_step --set dtype=bf16 --set batch=4 --set seq_len=256"
  base advice-train-bf16 "$of"
  change advice-train-bf16 fused "$of" "--set fused_optimizer=on"
  change advice-train-bf16 batch16 "${of/batch=4/batch=16}"
  of="attention --set implementation=naive --set causal=on --set seq_len=4096"
  base advice-attn "$of"
  change advice-attn sdpa "${of/implementation=naive/implementation=sdpa}"
  change advice-attn triton "${of/implementation=naive/implementation=triton}"
  of="attention --set implementation=naive --set dtype=bf16 --set head_dim=64 --set seq_len=2048 --set batch=8"
  base advice-attn64 "$of"
  change advice-attn64 sdpa "${of/implementation=naive/implementation=sdpa}"
  of="moe_routing --set implementation=route_sort --set tokens=131072"
  base advice-moe "$of"
  change advice-moe default "$of" "--set compile=default"
  change advice-moe reduce "$of" "--set compile=reduce-overhead"
  of="gemm --set m=4096 --set n=11008 --set k=4096 --set dtype=bf16"
  base advice-gemm "$of"
  change advice-gemm fp8 "${of/dtype=bf16/dtype=fp8}"
  of="gemm --set m=4096 --set n=11008 --set k=4096 --set dtype=fp32"
  base advice-gemm-fp32 "$of"
  change advice-gemm-fp32 tf32 "${of/dtype=fp32/dtype=tf32}"
  of="generate --set preset=llama-7b-layer --set new_tokens=64"
  base advice-generate "$of"
  change advice-generate graph "$of" "--set cuda_graph=on"
}

steps() {
  for size in small medium large xl 2.7B; do
    for dtype in fp32 bf16; do
      job "transformer-$size-train-$dtype-length-256 transformer --profilers nsys --set preset=$size --set mode=train_step --set dtype=$dtype"
    done
  done
  for size in small medium large; do
    job "transformer-$size-forward-backward-fp32-length-256 transformer --profilers nsys --set preset=$size --set mode=forward_backward"
    job "transformer-$size-train-fp32-memory transformer --profilers memory --set preset=$size --set mode=train_step"
  done
  for graph in off on; do
    job "decode-llama-3-8b-graph-$graph decode --profilers nsys --set preset=llama-3-8b --set cuda_graph=$graph"
  done
  for name in sdpa triton; do
    job "decode-1-layer-context-16384-$name decode --profilers nsys --set preset=llama-7b-layer --set kv_heads=8 --set context=16384 --set attention=$name --set cuda_graph=on"
  done
  for length in 256 512 2048 4096 8192; do
    job "prefill-1-layer-length-$length prefill --profilers nsys --set preset=llama-7b-layer --set seq_len=$length"
  done
}

lengths() {
  for batch in 1 2 4; do
    for length in 512 2048 8192 16384; do
      for name in naive sdpa compiled triton; do
        job "attention-$name-batch-$batch-length-$length attention --set implementation=$name --set batch=$batch --set seq_len=$length"
      done
    done
  done
}

quantised() {  # torchao must be importable
  for weights in int8 fp8; do
    for mode in none reduce-overhead max-autotune; do
      job "decode-1-layer-$weights-$mode decode --repeats 3 --profilers nsys --set preset=llama-7b-layer --set weights=$weights --set compile=$mode"
    done
    job "decode-llama-3-8b-$weights-reduce-overhead decode --profilers nsys --set preset=llama-3-8b --set weights=$weights --set compile=reduce-overhead"
  done
  job "decode-llama-3-8b-bf16-reduce-overhead decode --profilers nsys --set preset=llama-3-8b --set compile=reduce-overhead"
}

again() {  # bases of other shapes and their changes: a second look at what `warpboard advise` predicts
  train="transformer --set mode=train_step"
  forward="transformer --set mode=forward"

  of="$train --set preset=small --set dtype=fp32 --set batch=8 --set seq_len=512"
  base again-train-small "$of"
  change again-train-small fused "$of" "--set fused_optimizer=on"
  change again-train-small tf32 "${of/dtype=fp32/dtype=tf32}"
  change again-train-small batch32 "${of/batch=8/batch=32}"
  of="$train --set preset=medium --set dtype=bf16 --set batch=16 --set seq_len=512"
  base again-train-medium "$of"
  change again-train-medium fused "$of" "--set fused_optimizer=on"
  change again-train-medium default "$of" "--set compile=default"
  of="$train --set preset=large --set dtype=fp32 --set batch=4 --set seq_len=512"
  base again-train-large "$of"
  change again-train-large fused "$of" "--set fused_optimizer=on"
  change again-train-large tf32 "${of/dtype=fp32/dtype=tf32}"
  change again-train-large bf16 "${of/dtype=fp32/dtype=bf16}"
  of="$train --set preset=xl --set dtype=bf16 --set batch=8 --set seq_len=256"
  base again-train-xl "$of"
  change again-train-xl fused "$of" "--set fused_optimizer=on"
  change again-train-xl batch16 "${of/batch=8/batch=16}"
  of="$forward --set preset=medium --set dtype=fp32 --set batch=16 --set seq_len=512"
  base again-forward-medium "$of"
  change again-forward-medium tf32 "${of/dtype=fp32/dtype=tf32}"
  change again-forward-medium default "$of" "--set compile=default"
  of="$forward --set preset=xl --set dtype=bf16 --set batch=16 --set seq_len=512"
  base again-forward-xl "$of"
  change again-forward-xl default "$of" "--set compile=default"
  change again-forward-xl sdpa "$of" "--set attention=sdpa"
  of="$forward --set preset=large --set dtype=bf16 --set batch=8 --set seq_len=1024"
  base again-forward-large "$of"
  change again-forward-large sdpa "$of" "--set attention=sdpa"
  change again-forward-large default "$of" "--set compile=default"
  of="prefill --set preset=llama-7b-layer --set layers=2 --set seq_len=4096 --set attention=naive"
  base again-prefill-2 "$of"
  change again-prefill-2 sdpa "${of/attention=naive/attention=sdpa}"
  change again-prefill-2 default "$of" "--set compile=default"
  of="attention --set implementation=naive --set dtype=bf16 --set head_dim=128 --set seq_len=1024 --set batch=16"
  base again-attention-1k "$of"
  change again-attention-1k sdpa "${of/implementation=naive/implementation=sdpa}"
  of="attention --set implementation=naive --set dtype=fp16 --set head_dim=128 --set causal=on --set seq_len=8192 --set batch=1"
  base again-attention-8k "$of"
  change again-attention-8k sdpa "${of/implementation=naive/implementation=sdpa}"
  of="attention --set implementation=naive --set dtype=fp16 --set mode=forward_backward --set head_dim=128 --set seq_len=4096 --set batch=2"
  base again-attention-train "$of"
  change again-attention-train sdpa "${of/implementation=naive/implementation=sdpa}"
  of="gemm --set m=8192 --set n=8192 --set k=8192 --set dtype=fp32"
  base again-gemm-8k "$of"
  change again-gemm-8k tf32 "${of/dtype=fp32/dtype=tf32}"
  change again-gemm-8k bf16 "${of/dtype=fp32/dtype=bf16}"
  of="gemm --set m=2048 --set n=8192 --set k=2048 --set dtype=bf16"
  base again-gemm-2k "$of"
  change again-gemm-2k fp8 "${of/dtype=bf16/dtype=fp8}"
  of="decode --set preset=llama-7b-layer --set layers=4 --set batch=64 --set context=1024"
  base again-decode-4 "$of"
  change again-decode-4 default "$of" "--set compile=default"
  change again-decode-4 graph "$of" "--set cuda_graph=on"
  change again-decode-4 batch128 "${of/batch=64/batch=128}"
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
