#!/bin/bash
# Times the programs here without a profiler, and captures those that tests/data/pairs does not have, on one GPU.
#
#   OUT=DIR DEPS=FOLDER tests/promises/programs/measure_h200.sh SECONDS [TIMED...] -- [CAPTURED...]
#
# FOLDER: what prepare.sh made. TIMED, CAPTURED: PROGRAM:FAULT; none is timed unless it is named, and all that is missing is
# captured unless some are named. No capture starts after SECONDS. Leaves OUT/truth.json, OUT/captures.tar (as it goes) and logs.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
DEPS=$(cd "$DEPS" && pwd)
UNTIL=$1; shift
export PYTHONPATH=$HERE/../../../src PYTHONUNBUFFERED=1 TORCHINDUCTOR_COMPILE_THREADS=1 HF_HUB_OFFLINE=1
WORK=$(mktemp -d)
NSYS=$(command -v nsys || ls /opt/nvidia/nsight-systems*/*/target-linux-x64/nsys \
  /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys 2>/dev/null | head -1)
IMPORTER=$(ls -d "$(dirname "$NSYS")"/../linux-desktop-* 2>/dev/null | head -1)
if [ -n "$IMPORTER" ]; then   # nsys inside Nsight Compute needs to be told of its importer, and of libdw
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %s "$@"\n' "$DEPS/lib:$IMPORTER" "$NSYS" > "$WORK/nsys"
  chmod +x "$WORK/nsys"; NSYS=$WORK/nsys
fi
TIMED=(); while [ $# -gt 0 ] && [ "$1" != -- ]; do TIMED+=("$1"); shift; done
[ $# -gt 0 ] && shift
if [ ${#TIMED[@]} -gt 0 ]; then   # alone on the machine
  OMP_NUM_THREADS=4 timeout "$UNTIL" python3 "$HERE/truth.py" "$OUT/truth.json" --times 2 --only "${TIMED[@]}" > "$OUT/truth.log" 2>&1
  grep -a '^\[\|Error' "$OUT/truth.log" | cut -c1-200
fi
echo "[$SECONDS s] captures"
DEPS=$DEPS/site python3 "$HERE/captures.py" "$OUT" --nsys "$NSYS" --until $((UNTIL - SECONDS)) --workers 6 \
  --stepscope "python3 $HERE/without_polars.py" --only "$@" 2>&1 | stdbuf -oL cut -c1-400
rm -r "$WORK"
