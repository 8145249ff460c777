#!/bin/bash
# Measures on one GPU what faults cost without a profiler, and captures the small programs of jobs.py.
#
#   OUT=DIR [LIB=DIR] tests/promises/measure_h200.sh jobs|reference [NAME...]
#
# `jobs`: NAME is a job of jobs.py. Leaves times-NAME.json, and captures.tar.xz (nsys and torch, scrubbed).
# `reference`: examples/moe_reference at 4 ranks, as capture_h200.sh runs it, with every fault and without, by torchrun and without a
# profiler. Leaves reference.txt: a line `FAULT step N: … ms` for every step. LIB: where libdw.so.1 lies, which nsys needs.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
: "${OUT:?set OUT to a folder}"
WHAT=$1; shift
PYTHON=${PYTHON:-python3}
WORK=$(mktemp -d)
export PYTHONPATH=$REPO/src OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1
say() { echo "[$SECONDS s] $*"; }

if [ "$WHAT" = jobs ]; then
  NSYS=$(command -v nsys || ls /opt/nvidia/nsight-systems*/*/target-linux-x64/nsys \
    /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys /usr/local/cuda*/nsight-*/host/target-linux-x64/nsys 2>/dev/null | head -1)
  LIBS=${LIB:-}:$(ls -d "$(dirname "$NSYS")"/../linux-desktop-* 2>/dev/null | head -1)
  nsys() { LD_LIBRARY_PATH=$LIBS "$NSYS" "$@"; }
  mkdir -p "$WORK/out"
  for job in "$@"; do
    timeout 60 "$PYTHON" "$HERE/jobs.py" time "$job" "$OUT/times-$job.json" 2>&1 | tail -3
    for pair in $("$PYTHON" "$HERE/jobs.py" list); do
      variant=${pair#*:}
      [ "${pair%:*}" = "$job" ] || continue
      name=$job-$variant
      timeout 60 "$PYTHON" "$HERE/jobs.py" torch "$job" "$variant" "$WORK/out/$name.pt.trace.json.gz" 2>&1 | tail -1
      nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none -c cudaProfilerApi --capture-range-end=stop \
        -o "$WORK/$name" "$PYTHON" "$HERE/jobs.py" run "$job" "$variant" "$WORK/out" > "$WORK/said" 2>&1 \
        && nsys export --type sqlite -o "$WORK/out/$name.sqlite" "$WORK/$name.nsys-rep" >> "$WORK/said" 2>&1
      [ -f "$WORK/out/$name.sqlite" ] || tail -5 "$WORK/said"
    done
    say "$job done"
  done
  "$PYTHON" "$REPO/examples/moe_reference/scrub.py" --thin "$WORK"/out/*.sqlite "$WORK"/out/*.pt.trace.json.gz
  tar cf - -C "$WORK/out" . | xz -3 -T0 > "$OUT/captures.tar.xz"
  exit
fi

# As capture_h200.sh has it.
export OMP_NUM_THREADS=1
export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
nvidia-cuda-mps-control -d
trap 'echo quit | nvidia-cuda-mps-control >/dev/null 2>&1; rm -rf "$WORK"' EXIT
export NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 TORCH_NCCL_USE_COMM_NONBLOCKING=0
SHAPE="--pp 2 --ep 2 --layers 2 --heads 4 --experts 2 --vocabulary 1024 --micro-batches 6 --seq 2048"
LARGE="$SHAPE --width 512 --hidden 131072"
WIDE="$SHAPE --width 1024 --hidden 65536"
FLAT="$LARGE --pp 1 --ep 4 --layers 1 --experts 4 --micro-batches 4"
LITTLE="$SHAPE --width 512 --hidden 32768"
TINY="$SHAPE --seq 1024 --width 512 --hidden 8192"
PORT=29700
one() {  # NAME OPTIONS
  local name=$1 began=$SECONDS; shift
  PORT=$((PORT + 1))
  timeout -s INT -k 10 60 "$PYTHON" -m torch.distributed.run --nproc-per-node 4 --master-port $PORT \
    "$REPO/examples/moe_reference/train.py" --share-gpu "$@" --steps "${STEPS:-40}" > "$WORK/said" 2>&1
  say "$name: exit $?, $((SECONDS - began)) s, $(grep -c '^step ' "$WORK/said") steps"
  grep '^step ' "$WORK/said" | sed "s/^/$name /" >> "$OUT/reference.txt"
  grep -q '^step ' "$WORK/said" || tail -5 "$WORK/said"
}
want() { [ -z "$NAMES" ] || [[ " $NAMES " == *" $1 "* ]]; }
NAMES="$*"
# shellcheck disable=SC2086
{
  want none && one none $LARGE
  want straggler && one straggler $LARGE --fault straggler:rank=3,factor=2
  want slow-host && one slow-host $LARGE --fault slow-host:rank=1,factor=60
  want imbalance && one imbalance $LARGE --fault imbalance:rank=2,factor=4
  want alloc && one alloc $LARGE --fault alloc:per_layer=2
  want slow-link && one slow-link $LARGE --fault slow-link:ranks=0-1,factor=4
  want late-node && one late-node $LARGE --fault late-node:node=1,delay_us=100000 --ranks-per-node 2
  want none && one none $LARGE
  want serialized && one serialized $WIDE --fault serialized:how=wait && one serialized-none $WIDE
  want dataloader && one dataloader $FLAT --fault dataloader:stall_ms=100 && one dataloader-none $FLAT
  want host-syncs && one host-syncs $LITTLE --fault host-syncs:per_layer=7 && one host-syncs-none $LITTLE
  want tiny-kernels && one tiny-kernels $TINY --fault tiny-kernels:split=96 && one tiny-kernels-none $TINY
}
