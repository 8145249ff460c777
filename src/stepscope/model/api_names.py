"""Names of CUDA's and HIP's calls, without what profilers append: version and default stream."""

from __future__ import annotations

import re

#: `_v7000`, `_v2`, `_ptsz`, `_ptds`, and combinations of them.
SUFFIX = r"(?:_v\d+|_ptsz|_ptds)*"
_AT_END = re.compile(SUFFIX + "$")


def api_name(raw: str) -> str:
    """`cudaLaunchKernel`, not `cudaLaunchKernel_ptsz_v7000`."""
    return _AT_END.sub("", raw, count=1)
