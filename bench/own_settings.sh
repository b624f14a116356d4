#!/bin/sh
# Settings of programs that are not ours: `bench/own_settings.sh OUT`, on a GPU host with PyTorch. Each program of
# bench/programs as it is, with an nsys pass for the predictions, and with settings, by the clean pass alone. A pair shares its
# name and its words. `./warpboard import OUT/*` and `./warpboard advise --score` compare what was predicted.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$root" || exit 1

one() { # FOLDER NAME PASSES PROGRAM OPTIONS [VARIABLE=VALUE]
    echo "== $1"
    env ${6:-} ./warpboard profile --quiet --name "$2" --passes "$3" --repeats 3 $5 --out "$out/$1" \
        -- python3 "bench/programs/$4.py"
}

tf32=TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1
segments=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
one fp32-train fp32-train clean,nsys fp32_train ""
one fp32-train-tf32 fp32-train clean fp32_train "" $tf32
one fp32-score fp32-score clean,nsys fp32_score ""
one fp32-score-tf32 fp32-score clean fp32_score "" $tf32
one fp32-score-nvidia-override fp32-score clean fp32_score "" NVIDIA_TF32_OVERRIDE=1
one fp32-score-eager-loading fp32-score clean fp32_score "" CUDA_MODULE_LOADING=EAGER
one growing-cache growing-cache clean,nsys growing_cache "--steps 40"
one growing-cache-expandable growing-cache clean growing_cache "--steps 40" $segments
one many-lengths many-lengths clean,nsys many_lengths "--steps 40"
one many-lengths-expandable many-lengths clean many_lengths "--steps 40" $segments
