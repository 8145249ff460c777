#!/bin/bash
# Makes a folder of what a machine with a GPU, but without a network, needs beside the repository to capture the programs here:
# stepscope's packages but Polars, which is large (without_polars.py), and libdw, which nsys within Nsight Compute wants.
#
#   tests/promises/programs/prepare.sh FOLDER [PYTHON_VERSION]
set -eu
OUT=$1
mkdir -p "$OUT/site" "$OUT/lib" "$OUT/wheels"
python3 -m pip download -q --only-binary :all: --python-version "${2:-3.12}" --platform manylinux_2_28_x86_64 \
  --platform manylinux2014_x86_64 -d "$OUT/wheels" msgspec click rich xxhash
for wheel in "$OUT"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$OUT/site"; done
rm -r "$OUT/wheels"
for name in libdw.so.1 libelf.so.1 libbz2.so.1.0; do
  found=$(find /usr/lib /lib -name "$name" 2>/dev/null | head -1)
  [ -z "$found" ] && echo "no $name here: nsys may not make its reports" || cp -L "$found" "$OUT/lib/"
done
du -sh "$OUT"
