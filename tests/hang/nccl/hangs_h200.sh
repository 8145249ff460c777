#!/bin/bash
# Real hangs: eight NCCL ranks on ONE GPU (MPS, the loopback), some 15 faults, dumps of each rank's flight recorder.
#
#   OUT=DIR [LIMIT_S=115] [AT_ONCE=5] [BACKEND=nccl] [ONLY=FAULT,...] [DONE=JOB,...] tests/hang/nccl/hangs_h200.sh
#
# Leaves in $OUT: hangs.tar.xz (a folder per job: dumps, logs, truth.json) and log.txt. pack.py scrubs them.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
: "${OUT:?set OUT to a folder}"
WORK=$(mktemp -d)
mkdir -p "$OUT" "$WORK/out"
PYTHON=${PYTHON:-python3} BACKEND=${BACKEND:-nccl} LIMIT_S=${LIMIT_S:-115} AT_ONCE=${AT_ONCE:-5}
ONLY=${ONLY:-} DONE=${DONE:-}
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 TORCH_CPP_LOG_LEVEL=INFO PYTORCH_NVML_BASED_CUDA_CHECK=1
say() { echo "[$SECONDS s] $*" | tee -a "$OUT/log.txt"; }
pack() { tar cf - -C "$WORK/out" . | xz -2 -T0 > "$OUT/hangs.tar.xz"; }
trap 'rm -rf "$WORK"' EXIT
for tool in "$HERE/../../../.hangs-carry/py-spy" "$(command -v py-spy)"; do
  if [ -x "$tool" ]; then export PY_SPY=$tool; break; fi
done
say "py-spy: ${PY_SPY:-none}"
timeout -k 5 $((LIMIT_S + 40)) "$PYTHON" "$HERE/run.py" --backend "$BACKEND" --out "$WORK/out" --mps "$WORK" --limit "$LIMIT_S" \
  --at-once "$AT_ONCE" --only "$ONLY" --done "$DONE" 2>&1 | tee -a "$OUT/log.txt"
pack
ls "$WORK/out" | wc -l | tee -a "$OUT/log.txt"
ls -la "$OUT"
