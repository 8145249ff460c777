#!/bin/bash
# Real hangs: eight NCCL ranks on ONE GPU (MPS, the loopback), some 15 faults, dumps of each rank's flight recorder.
#
#   OUT=DIR [LIMIT_S=98] [AT_ONCE=4] [BACKEND=nccl] [FIRST=0] tests/hang/nccl/hangs_h200.sh
#
# Leaves in $OUT: hangs.tar.xz (a folder per job: dumps, logs, truth.json) and log.txt. About 140 s. pack.py scrubs.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
: "${OUT:?set OUT to a folder}"
WORK=$(mktemp -d)
mkdir -p "$OUT" "$WORK/out" "$WORK/mps" "$WORK/mps-log"
PYTHON=${PYTHON:-python3} BACKEND=${BACKEND:-nccl} LIMIT_S=${LIMIT_S:-98} AT_ONCE=${AT_ONCE:-4}
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 TORCH_CPP_LOG_LEVEL=INFO PYTORCH_NVML_BASED_CUDA_CHECK=1
say() { echo "[$SECONDS s] $*" | tee -a "$OUT/log.txt"; }
pack() { tar cf - -C "$WORK/out" . | xz -2 -T0 > "$OUT/hangs.tar.xz"; }
stop_mps() { echo quit | timeout 5 nvidia-cuda-mps-control > /dev/null 2>&1; }
trap 'stop_mps; rm -rf "$WORK"' EXIT
for tool in "$HERE/../../../.hangs-carry/py-spy" "$(command -v py-spy)"; do
  if [ -x "$tool" ]; then export PY_SPY=$tool; break; fi
done
say "py-spy: ${PY_SPY:-none}"
jobs() { timeout -k 5 "$1" "$PYTHON" "$HERE/run.py" --backend "$BACKEND" --out "$WORK/out" "${@:2}" 2>&1 | tee -a "$OUT/log.txt"; return "${PIPESTATUS[0]}"; }

if [ "$BACKEND" = nccl ]; then
  export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log
  nvidia-cuda-mps-control -d 2>&1 | tee -a "$OUT/log.txt"
fi
jobs $((LIMIT_S + 20)) --limit "$LIMIT_S" --at-once "$AT_ONCE" ${ONLY:+--only "$ONLY"} ${SEEDS:+--seeds "$SEEDS"} ${FIRST:+--first "$FIRST"}
said=$?
pack
say "jobs: exit $said"
if [ "$BACKEND" = nccl ]; then
  if [ $said -eq 1 ]; then  # no job under MPS left a dump: ranks take turns on the GPU, which is slow
    tail -3 "$WORK/mps-log/"*.log 2> /dev/null | cut -c1-200 | tee -a "$OUT/log.txt"
    stop_mps
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    jobs 90 --limit 70 --at-once 2
  else
    jobs 30 --limit 3 --at-once 4 --last
  fi
  say "last: exit $?"
  pack
  grep -h -i error "$WORK/mps-log/"*.log 2> /dev/null | tail -3 | cut -c1-200 | tee -a "$OUT/log.txt"
fi
ls "$WORK/out" | wc -l | tee -a "$OUT/log.txt"
ls -la "$OUT"
