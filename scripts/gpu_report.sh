#!/usr/bin/env bash
# Checks every kernel of a GPU against the CPU, then measures model shapes with random weights beside the device's floor,
# and prints both as Markdown. Needs nothing but the binary, the driver and, for CUDA, the toolkit: no Rust, no network,
# no model files.
#
#   cargo build --release --features cuda && strip target/release/ember    # on any machine; carry the binary and this file
#   scripts/gpu_report.sh ./ember cuda > report.md                          # on the machine with the GPU
#
# usage: gpu_report.sh BINARY BACKEND [--quick] [--keep]
#   --quick   Qwen3-0.6B only
#   --keep    leave the synthetic model files in ./gpu-report-models (up to 60 GB) for another run
set -euo pipefail
if [ $# -lt 2 ]; then sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; fi
ember=$(realpath "$1"); backend=$2; shift 2
quick=; keep=
for option in "$@"; do
  case $option in
    --quick) quick=1 ;;
    --keep) keep=1 ;;
    *) echo "unknown option $option" >&2; exit 2 ;;
  esac
done
models=gpu-report-models
mkdir -p "$models"
[ -n "$keep" ] || trap 'rm -rf "$models"' EXIT

echo "# $("$ember" devices --backend "$backend" | head -1), $(date -u +%F)"
echo
"$ember" devices --backend "$backend" | sed 's/^/    /'
echo
"$ember" devices --check --backend "$backend"
echo
"$ember" devices --measure --backend "$backend" | sed 's/^/    /'
echo

bench() { # FILE NAME ARGS...
  local file=$1 name=$2; shift 2
  echo "## $name: ember bench $*"
  echo
  "$ember" bench -m "$file" --backend "$backend" -r 3 "$@" || echo "failed with status $?"
  echo
}

measure() { # ARCH PRESET TYPE
  local file="$models/$1-$2-$3.gguf"
  [ -s "$file" ] || "$ember" synth --arch "$1" --preset "$2" --type "$3" "$file"
  bench "$file" "$1 $2 $3" -p 512 -n 64
  bench "$file" "$1 $2 $3" -p 4096 -n 0
  for batch in 1 8 32; do
    bench "$file" "$1 $2 $3" -p 0 -n 32 --batch "$batch" --depth 1024
  done
  bench "$file" "$1 $2 $3" -p 0 -n 32 --depth 16384
  [ -n "$keep" ] || rm -f "$file"
}

for type in q8_0 q4_k_m; do
  measure qwen3 0.6b "$type"
  [ -n "$quick" ] || measure qwen3 8b "$type"
  [ -n "$quick" ] || measure mistral3 24b "$type"
done
