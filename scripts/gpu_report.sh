#!/usr/bin/env bash
# Checks every kernel of a GPU against the CPU, then measures model shapes with random weights beside the device's floor,
# and prints both as Markdown. Needs nothing but the binary, the driver and, for CUDA, the toolkit: no Rust, no network,
# no model files. With `ndarray` it measures the CPU.
#
#   cargo build --release --features cuda && strip target/release/ember    # on any machine; carry the binary and this file
#   scripts/gpu_report.sh ./ember cuda > report.md                          # on the machine with the GPU
#   cargo bench --bench shapes --features cuda -- --quick                   # the same where there is a Rust toolchain
#
# usage: gpu_report.sh BINARY BACKEND [--quick] [--smoke] [--keep]
#   --quick   Qwen3-0.6B only
#   --smoke   one layer of it, a few tokens, no single products: whether it runs, not how fast
#   --keep    leave the synthetic model files in ./gpu-report-models (up to 60 GB) for another run
set -euo pipefail
if [ $# -lt 2 ]; then sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; fi
ember=$(realpath "$1"); backend=$2; shift 2
quick=; smoke=; keep=; layers=(); repeat=3; prompts=(512 4096); generate=64; few=32; depth=1024; deep=16384
for option in "$@"; do
  case $option in
    --quick) quick=1 ;;
    --smoke) quick=1; smoke=1; layers=(--layers 1); repeat=1; prompts=(16 40); generate=2; few=1; depth=2; deep=64 ;;
    --keep) keep=1 ;;
    *) echo "unknown option $option" >&2; exit 2 ;;
  esac
done
models=gpu-report-models failed=0
mkdir -p "$models"
[ -n "$keep" ] || trap 'rm -rf "$models"' EXIT

echo "# $("$ember" devices --backend "$backend" | head -1), $(date -u +%F)"
echo
"$ember" devices --backend "$backend" | sed 's/^/    /'
echo
if [ "$backend" != ndarray ]; then
  "$ember" devices --check --backend "$backend"
  echo
  if [ -z "$smoke" ]; then
    "$ember" devices --measure --backend "$backend" | sed 's/^/    /'
    echo
  fi
fi

bench() { # FILE NAME ARGS...
  local file=$1 name=$2; shift 2
  echo "## $name: ember bench $*"
  echo
  "$ember" bench -m "$file" --backend "$backend" -r "$repeat" "$@" || { echo "failed with status $?"; failed=1; }
  echo
}

measure() { # ARCH PRESET TYPE
  local file="$models/$1-$2-$3.gguf"
  [ -s "$file" ] || "$ember" synth --arch "$1" --preset "$2" --type "$3" ${layers[@]+"${layers[@]}"} "$file"
  bench "$file" "$1 $2 $3" -p "${prompts[0]}" -n "$generate"
  bench "$file" "$1 $2 $3" -p "${prompts[1]}" -n 0
  for batch in 1 8 32; do
    bench "$file" "$1 $2 $3" -p 0 -n "$few" --batch "$batch" --depth "$depth"
  done
  bench "$file" "$1 $2 $3" -p 0 -n "$few" --depth "$deep"
  [ -n "$keep" ] || rm -f "$file"
}

for type in q8_0 q4_k_m; do
  measure qwen3 0.6b "$type"
  [ -n "$quick" ] || measure qwen3 8b "$type"
  [ -n "$quick" ] || measure mistral3 24b "$type"
done
exit $failed
