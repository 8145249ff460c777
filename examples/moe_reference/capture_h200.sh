#!/bin/bash
# Captures the reference workload at 4 ranks on ONE GPU, without and with each fault, by nsys and by torch.profiler:
# `stepscope capture run` once for each. Ranks run side by side (MPS), each on a quarter of the GPU, and talk NCCL over the
# loopback. stepscope must be importable by $PYTHON.
#
#   OUT=DIR [NSYS=PATH] [BACKENDS="nsys torch"] [FAULTS="none serialized ..."] [LIMIT_S=500] examples/moe_reference/capture_h200.sh
#
# FAULT-none is the workload of a fault without it: its twin. WARMUP and STEPS: steps before the capture, and in it.
# Leaves in $OUT: captures-a.tar.xz and captures-b.tar.xz (BACKEND/FAULT/: traces and manifest, scrubbed by scrub.py), log.txt.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
: "${OUT:?set OUT to a folder}"
BACKENDS=${BACKENDS:-"nsys torch"}
LIMIT_S=${LIMIT_S:-500}          # no new run is started after so many seconds
RUN_S=${RUN_S:-80}               # a run that takes longer is ended
WORK=$(mktemp -d)
LOG=$OUT/log.txt
mkdir -p "$OUT"; : > "$LOG"
say() { echo "[$SECONDS s] $*" | tee -a "$LOG"; }

# -- tools -------------------------------------------------------------------------------------------------------------
PYTHON=${PYTHON:-python3}
export PYTHONPATH=$REPO/src${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
if [ -z "${NSYS:-}" ]; then
  NSYS=$(command -v nsys || ls /opt/nvidia/nsight-systems*/*/target-linux-x64/nsys \
    /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys /usr/local/cuda*/nsight-*/host/target-linux-x64/nsys 2>/dev/null | head -1)
fi
IMPORTER=$(ls -d "$(dirname "$NSYS")"/../linux-desktop-* 2>/dev/null | head -1)
if [ -n "$IMPORTER" ]; then   # nsys inside Nsight Compute needs to be told of its importer, and of libdw
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %s "$@"\n' \
    "$REPO/.device/lib:$IMPORTER" "$NSYS" > "$WORK/nsys"
  chmod +x "$WORK/nsys"; NSYS=$WORK/nsys
fi
say "nsys: ${NSYS:-none} $([ -n "$NSYS" ] && "$NSYS" --version | tail -1)"
say "torch: $($PYTHON -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0), torch.cuda.nccl.version())' 2>&1 | tail -1)"

# -- the GPU, shared ---------------------------------------------------------------------------------------------------
export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
nvidia-cuda-mps-control -d 2>&1 | tee -a "$LOG" || say "no MPS: ranks take turns on the GPU"
trap 'echo quit | nvidia-cuda-mps-control >/dev/null 2>&1; rm -rf "$WORK"' EXIT
export NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 TORCH_NCCL_USE_COMM_NONBLOCKING=0

# -- what is run -------------------------------------------------------------------------------------------------------
# One wide layer for each stage: the GPU computes most of the time, transfers are short beside it, and there are few events.
SHAPE="--pp 2 --ep 2 --layers 2 --heads 4 --experts 2 --vocabulary 1024 --micro-batches 6 --seq 2048"
LARGE="$SHAPE --width 512 --hidden 131072"
ALL="none serialized straggler slow-host dataloader host-syncs imbalance alloc tiny-kernels slow-link late-node"
FAULTS=${FAULTS:-$ALL}
workload() {
  case $1 in
    *-none) workload "${1%-none}" | sed 's/ --fault [^ ]*//' ;;
    none) echo "$LARGE" ;;
    serialized) echo "$SHAPE --width 1024 --hidden 65536 --fault serialized:how=wait" ;;    # twice the bytes
    straggler) echo "$LARGE --fault straggler:rank=3,factor=2" ;;
    slow-host) echo "$LARGE --fault slow-host:rank=1,factor=60" ;;
    dataloader) echo "$LARGE --pp 1 --ep 4 --layers 1 --experts 4 --micro-batches 4 --fault dataloader:stall_ms=100" ;;  # three steps
    host-syncs) echo "$SHAPE --width 512 --hidden 32768 --fault host-syncs:per_layer=7" ;;  # little for the host to hide behind
    imbalance) echo "$LARGE --fault imbalance:rank=2,factor=4" ;;
    alloc) echo "$LARGE --fault alloc:per_layer=2" ;;
    tiny-kernels) echo "$SHAPE --seq 1024 --width 512 --hidden 8192 --fault tiny-kernels:split=96" ;;
    slow-link) echo "$LARGE --fault slow-link:ranks=0-1,factor=4" ;;
    late-node) echo "$LARGE --fault late-node:node=1,delay_us=100000 --ranks-per-node 2" ;;
    *) return 1 ;;
  esac
}
PORT=29600
one() {  # BACKEND NAME
  local shape steps=${STEPS:-1} warmup=${WARMUP:-4} began=$SECONDS
  shape=$(workload "$2") || { say "no fault $2"; return; }
  if [ "$2" = dataloader ]; then steps=3; fi     # what happens between steps needs several; odd: the median chunk is steady
  PORT=$((PORT + 1))
  # shellcheck disable=SC2086
  timeout -s INT -k 20 "$RUN_S" "$PYTHON" -m stepscope capture run --backend "$1" --nsys "$NSYS" --nproc 4 --share-gpu \
    --port "$PORT" --warmup "$warmup" --steps $steps --grace 20 -o "$WORK/out/$1/$2" -- \
    "$PYTHON" "$HERE/train.py" --share-gpu $shape --steps $((warmup + steps)) > "$WORK/said" 2>&1
  local rc=$?
  say "$1 $2: exit $rc, $((SECONDS - began)) s"
  if [ $rc -ne 0 ]; then cut -c1-200 "$WORK/said" | tee -a "$LOG"; else cat "$WORK/said" >> "$LOG"; fi
}
mkdir -p "$WORK/out/nsys" "$WORK/out/torch"
for name in $FAULTS; do   # faults outside, backends inside: where time runs out, what there is has both
  for backend in $BACKENDS; do
    if [ $SECONDS -gt "$LIMIT_S" ]; then say "no time for $backend $name"; else one "$backend" "$name"; fi
  done
done

# -- what is left behind -----------------------------------------------------------------------------------------------
cd "$WORK/out" || exit 1
for f in */*/*.nsys-rep; do [ -f "$f" ] && say "$f: $(stat -c %s "$f") bytes"; done
rm -rf ./*/*/*.nsys-rep ./*/*/log.txt ./*/*/steps
$PYTHON "$HERE/scrub.py" ./*/*/* | tee -a "$LOG"
say packing
tar cf - nsys | xz -3 -T0 > "$OUT/captures-a.tar.xz"
tar cf - torch | xz -3 -T0 > "$OUT/captures-b.tar.xz"
ls -la "$OUT" | tee -a "$LOG"
say done
