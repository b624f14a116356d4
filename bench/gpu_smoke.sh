#!/usr/bin/env bash
# Run every workload under every pass on this GPU, and every failure that can be provoked on
# purpose; print a table of what became of each. Exit code 0: all as expected.
#
#   bench/gpu_smoke.sh [OUT_DIR] [NAME...]     NAME: only jobs whose name contains it
#
# WARPBOARD_PYTHON: the Python that has torch (python3). SMOKE_JOBS: jobs at the same time (1);
# more is faster and makes the times in the bundles worthless, not the outcomes.
set -u
cd "$(dirname "$0")/.." || exit 3
python=${WARPBOARD_PYTHON:-python3}
out=${1:-$(mktemp -d)}
shift $(($# > 0 ? 1 : 0))
mkdir -p "$out"
true_program=$(readlink -f "$(type -P true)")
export WARPBOARD_ALLOW_COMMANDS="$true_program" OUT="$out" PYTHON="$python"

all=nsys,ncu,memory,trace
jobs_file="$out/jobs.tsv"
# name, expected (status, or status:code of an outcome or warning), arguments; tab-separated
cat >"$jobs_file" <<JOBS
decode_eager	done	decode --profilers $all --set preset=llama-7b-layer
decode_default	done	decode --profilers $all --set preset=llama-7b-layer --set compile=default
decode_reduce_overhead	done	decode --profilers $all --set preset=llama-7b-layer --set compile=reduce-overhead
decode_max_autotune	done	decode --profilers $all --set preset=llama-7b-layer --set compile=max-autotune
decode_cuda_graph	done	decode --profilers $all --set preset=llama-7b-layer --set cuda_graph=on
decode_naive_gqa	done	decode --profilers nsys --set layers=2 --set kv_heads=8 --set attention=naive
prefill	done	prefill --profilers $all --set seq_len=1024
generate	done	generate --profilers $all --set new_tokens=16
generate_cuda_graph	done	generate --profilers nsys,trace --set new_tokens=16 --set cuda_graph=on
transformer_forward	done	transformer --profilers $all --set mode=forward
transformer_train_bf16	done	transformer --profilers $all --set mode=train_step --set dtype=bf16
transformer_train_compiled	done	transformer --profilers nsys --set mode=train_step --set compile=default --set attention=sdpa
attention_naive	done	attention --profilers $all --set mode=forward_backward
attention_sdpa	done	attention --profilers nsys --set implementation=sdpa --set mode=forward_backward
attention_compiled	done	attention --profilers nsys --set implementation=compiled --set mode=forward_backward
attention_triton	done	attention --profilers $all --set implementation=triton --set mode=forward_backward
moe_sort	done	moe_routing --profilers nsys --set implementation=route_sort
moe_fused	done	moe_routing --profilers $all --set implementation=route_fused
gemm_cublas	done	gemm --profilers $all
gemm_triton	done	gemm --profilers $all --set implementation=triton
gemm_triton_split_k	done	gemm --profilers nsys --set implementation=triton --set split_k=4
gemm_fp8	done	gemm --profilers nsys --set dtype=fp8
command_true	done:no_kernels_profiled	command --profilers nsys --set argv=["$true_program"]
fail_oom_device	oom	transformer --profilers memory --set mode=train_step --set memory_cap_gib=2
fail_oom_host	oom	decode --gpu cpu --set preset=llama-7b-layer --set memory_cap_gib=0.3
fail_graphs_skipped	done:cuda_graphs_skipped	decode --set compile=reduce-overhead --set kv_cache=argument
fail_compiled_late	done:recompiled_in_measurement	decode --set compile=default --set warmup=0
fail_tuned_late	done:autotuned_in_measurement	attention --set implementation=triton --set mode=forward_backward --set warmup=0
fail_timeout	failed:timeout	decode --timeout 1
fail_not_allowed	failed:workload_failed	command --set argv=["/bin/ls"]
JOBS

run_job() {
  set -f
  IFS=$'\t' read -r name _ arguments <<<"$1"
  rm -rf "${OUT:?}/$name"
  # shellcheck disable=SC2086
  "$PYTHON" -m worker.run_bundle $arguments --out "$OUT/$name" >"$OUT/$name.txt" 2>&1
  echo "$name: ended with $?" >&2
}
export -f run_job

chosen="$out/chosen.tsv"
if [ $# -eq 0 ]; then
  cp "$jobs_file" "$chosen"
else
  printf '%s\n' "$@" >"$out/names"
  grep -F -f "$out/names" "$jobs_file" >"$chosen"
fi
tr '\n' '\0' <"$chosen" | xargs -0 -n 1 -P "${SMOKE_JOBS:-1}" bash -c 'run_job "$1"' _
exec "$python" bench/gpu_smoke_table.py "$chosen" "$out"
