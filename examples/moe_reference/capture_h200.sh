#!/bin/bash
# Captures the reference workload at 4 ranks on ONE GPU, without and with each fault, by nsys and by torch.profiler.
# Ranks share the GPU side by side (MPS), and talk NCCL over the loopback. Exports with NCCL's payloads (blobs and JSON).
#
#   OUT=DIR [NSYS=PATH] [BACKENDS="nsys torch"] [FAULTS="none serialized ..."] [LIMIT_S=450] examples/moe_reference/capture_h200.sh
#
# Leaves in $OUT: nsys-a.tar.gz, nsys-b.tar.gz (NAME.sqlite), torch.tar.gz (NAME.rankN.pt.trace.json.gz), steps.tar.gz
# (step times), log.txt. Host names and paths are scrubbed by scrub.py beside this file.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
: "${OUT:?set OUT to a folder}"
BACKENDS=${BACKENDS:-"nsys torch"}
LIMIT_S=${LIMIT_S:-450}          # no new run is started after so many seconds
RUN_S=${RUN_S:-75}               # a run that takes longer is ended
WORK=$(mktemp -d)
LOG=$OUT/log.txt
mkdir -p "$OUT"; : > "$LOG"
say() { echo "[$SECONDS s] $*" | tee -a "$LOG"; }

# -- tools -------------------------------------------------------------------------------------------------------------
PYTHON=${PYTHON:-python3}
if [ -z "${NSYS:-}" ]; then
  NSYS=$(command -v nsys || ls /opt/nvidia/nsight-systems*/*/target-linux-x64/nsys \
    /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys /usr/local/cuda*/nsight-*/host/target-linux-x64/nsys 2>/dev/null | head -1)
fi
if [ -n "$NSYS" ] && [ -d "$(dirname "$NSYS")/.." ]; then   # nsys inside Nsight Compute needs its importer and libdw
  IMPORTER=$(ls -d "$(dirname "$NSYS")"/../linux-desktop-* 2>/dev/null | head -1)
  NSYS_LIBS=$REPO/.device/lib${IMPORTER:+:$IMPORTER}
fi
nsys_() { LD_LIBRARY_PATH="${NSYS_LIBS:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$NSYS" "$@"; }
say "nsys: ${NSYS:-none} $([ -n "$NSYS" ] && nsys_ --version | tail -1)"
say "torch: $($PYTHON -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0), torch.cuda.nccl.version())' 2>&1 | tail -1)"

# -- the GPU, shared ---------------------------------------------------------------------------------------------------
export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
nvidia-cuda-mps-control -d 2>&1 | tee -a "$LOG" || say "no MPS: ranks take turns on the GPU"
trap 'echo quit | nvidia-cuda-mps-control >/dev/null 2>&1; rm -rf "$WORK"' EXIT
export NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export PYTHONPATH=$REPO/src${PYTHONPATH:+:$PYTHONPATH} TORCH_NCCL_USE_COMM_NONBLOCKING=0

# -- what is run -------------------------------------------------------------------------------------------------------
SHAPE=${SHAPE:-"--pp 2 --ep 2 --layers 4 --width 1024 --hidden 16384 --heads 8 --experts 8 --seq 4096 --vocabulary 4096 --micro-batches 6"}
WARMUP=${WARMUP:-3}
ALL="none serialized straggler slow-host dataloader host-syncs imbalance alloc tiny-kernels slow-link late-node"
FAULTS=${FAULTS:-$ALL}
fault_of() {
  case $1 in
    none) ;;
    serialized) echo "--fault serialized:how=wait" ;;
    straggler) echo "--fault straggler:rank=3,factor=3" ;;
    slow-host) echo "--fault slow-host:rank=1,factor=60" ;;
    dataloader) echo "--fault dataloader:stall_ms=100" ;;
    host-syncs) echo "--fault host-syncs:per_layer=4" ;;
    imbalance) echo "--fault imbalance:rank=2,factor=4" ;;
    alloc) echo "--fault alloc:per_layer=2" ;;
    tiny-kernels) echo "--fault tiny-kernels:split=32" ;;
    slow-link) echo "--fault slow-link:ranks=0-1,factor=4" ;;
    late-node) echo "--fault late-node:node=1,delay_us=100000 --ranks-per-node 2" ;;
    *) say "no fault $1"; return 1 ;;
  esac
}
PORT=29600
one() {  # BACKEND NAME
  local backend=$1 name=$2 dir=$WORK/$1/$2 faults steps=1 under=()
  faults=$(fault_of "$name") || return
  case $name in dataloader | late-node) steps=3 ;; esac     # what happens between steps needs several; odd: the median is steady
  PORT=$((PORT + 1)); mkdir -p "$dir"
  export STEPSCOPE_CAPTURE_BACKEND=$backend STEPSCOPE_CAPTURE_WARMUP=$WARMUP STEPSCOPE_CAPTURE_STEPS=$steps STEPSCOPE_CAPTURE_OUT=$dir
  if [ "$backend" = nsys ]; then
    # shellcheck disable=SC2086
    under=(nsys_ profile ${NSYS_FLAGS:---trace=cuda,nvtx --cuda-graph-trace=node -c cudaProfilerApi} --sample=none
      --cpuctxsw=none --capture-range-end=stop --force-overwrite=true -o "$dir/$name")
  fi
  local began=$SECONDS
  # shellcheck disable=SC2086
  with_limit "${under[@]}" "$PYTHON" -m torch.distributed.run --nproc-per-node 4 --master-port "$PORT" \
    "$HERE/train.py" --share-gpu $SHAPE --steps $((WARMUP + steps)) $faults > "$dir/log" 2>&1
  local rc=$?
  if [ "$backend" = nsys ] && [ -f "$dir/$name.nsys-rep" ]; then
    local export=(nsys_ export --type=sqlite --force-overwrite=true -o "$dir/$name.sqlite")
    "${export[@]}" --include-blobs=true --include-json=true "$dir/$name.nsys-rep" >> "$dir/log" 2>&1 ||
      "${export[@]}" "$dir/$name.nsys-rep" >> "$dir/log" 2>&1   # an nsys that knows no payloads
  fi
  say "$backend $name: exit $rc, $((SECONDS - began)) s; $(find "$dir" -name '*.sqlite' -o -name '*.gz' | wc -l) files; $(grep -E '^step ' "$dir/log" | tail -1)"
  if [ $rc -ne 0 ]; then tail -15 "$dir/log" | cut -c1-300 | tee -a "$LOG"; fi
}
with_limit() {  # as `timeout`, for the function above too; ends the whole process group
  setsid bash -c "$(declare -f nsys_); NSYS=$NSYS; NSYS_LIBS=${NSYS_LIBS:-}; \"\$@\"" _ "$@" & local pid=$!
  ( sleep "$RUN_S"; kill -TERM -- -$pid; sleep 5; kill -KILL -- -$pid ) 2>/dev/null & local watch=$!
  wait $pid; local rc=$?
  kill $watch 2>/dev/null; wait $watch 2>/dev/null
  return $rc
}

# Faults outside, backends inside: where time runs out, what there is has both.
for name in $FAULTS; do
  for backend in $BACKENDS; do
    if [ "$backend" = nsys ] && [ -z "$NSYS" ]; then continue; fi
    if [ $SECONDS -gt "$LIMIT_S" ]; then say "no time for $backend $name"; continue; fi
    one "$backend" "$name"
  done
done

# -- what is left behind -----------------------------------------------------------------------------------------------
mkdir -p "$WORK/out/nsys" "$WORK/out/torch" "$WORK/out/steps"
for f in "$WORK"/nsys/*/*.sqlite; do [ -f "$f" ] && cp "$f" "$WORK/out/nsys/"; done
for d in "$WORK"/torch/*/; do
  for f in "$d"*.pt.trace.json.gz; do
    [ -f "$f" ] && cp "$f" "$WORK/out/torch/$(basename "$d").$(basename "$f" | cut -d. -f1).pt.trace.json.gz"
  done
done
for d in "$WORK"/*/*/steps; do [ -d "$d" ] && cp -r "$d" "$WORK/out/steps/$(echo "$d" | awk -F/ '{print $(NF-2)"."$(NF-1)}')"; done
$PYTHON "$HERE/scrub.py" "$WORK"/out/nsys/*.sqlite "$WORK"/out/torch/*.gz 2>&1 | tee -a "$LOG"
say "packing"
( cd "$WORK/out/nsys" && n=$(ls | wc -l) && [ "$n" -gt 0 ] &&
  tar czf "$OUT/nsys-a.tar.gz" $(ls | head -$(((n + 1) / 2))) && tar czf "$OUT/nsys-b.tar.gz" $(ls | tail -n +$(((n + 1) / 2 + 1))) )
( cd "$WORK/out/torch" && [ -n "$(ls)" ] && tar cf "$OUT/torch.tar" . )
( cd "$WORK/out/steps" && tar czf "$OUT/steps.tar.gz" . )
for f in "$WORK"/*/*/log; do echo "== $f" | sed "s#$WORK/##"; tail -40 "$f" | cut -c1-240; done > "$OUT/runs.txt"
ls -la "$OUT" | tee -a "$LOG"
say done
