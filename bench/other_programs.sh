#!/bin/sh
# Profile programs that know nothing of Warpboard, each by the one command; print what they timed
# themselves beside what was measured: bench/other_programs.sh OUT [PYTHON]
#
# OUT gets one bundle a program. PYTHON (python3) runs the programs: torch and transformers, and jax
# or cupy for the programs that want them; what is not there is left out and named. SMALL=1 takes
# sizes for a CPU; PASSES names the passes; ONLY is an extended regular expression of the programs.
set -u
out=${1:?usage: other_programs.sh OUT [PYTHON]}
python=${2:-python3}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 3
programs=$root/bench/programs
mkdir -p "$out" || exit 3
out=$(CDPATH='' cd -- "$out" && pwd -P)

profile() { # NAME PROGRAM ARGS...
  name=$1
  shift
  echo "$name" | grep -Eq "${ONLY:-.}" || return 0
  echo "== $name"
  PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" python3 -m worker.profile \
    --name "$name" ${PASSES:+--passes "$PASSES"} --metric '(?P<lower>[0-9.]+) ms$' \
    --out "$out/$name" -- "$@" >"$out/$name.txt"
  echo "   exit code $?"
}

has() { "$python" -c "import $1" 2>/dev/null; }

small() { if [ "${SMALL:-}" = 1 ]; then echo "$1"; else echo "$2"; fi; }

if has transformers; then
  profile hf_gpt2_train "$python" "$programs/hf_gpt2_train.py" \
    $(small "--steps 12 --batch 2 --length 32 --layers 2 --width 128" "")
  profile hf_generate "$python" "$programs/hf_generate.py" \
    $(small "--rounds 3 --tokens 16 --prompt 8 --layers 2 --width 256" "")
else
  echo "== transformers is not installed: hf_gpt2_train and hf_generate left out"
fi
if has torch; then
  profile compiled_model "$python" "$programs/compiled_model.py" \
    $(small "--calls 30 --layers 1 --width 64 --length 32 --mode default" "--layers 16 --width 2048")
fi
if has jax; then
  profile jax_mlp "$python" "$programs/jax_mlp.py" \
    $(small "--steps 10 --width 64 --layers 2 --batch 16" "")
else
  echo "== jax is not installed: jax_mlp left out"
fi
if command -v nvcc >/dev/null 2>&1 && nvcc -O2 -o "$out/saxpy.bin" "$programs/saxpy.cu"; then
  profile saxpy "$out/saxpy.bin"
elif has cupy; then
  profile saxpy_cupy "$python" "$programs/saxpy_cupy.py"
else
  echo "== neither nvcc nor cupy is installed: saxpy left out"
fi

python3 "$root/bench/other_programs_table.py" "$out"
