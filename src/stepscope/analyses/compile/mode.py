"""How torch.compile was asked to compile: as `capture run` heard it, else as far as the trace gives it away.

A trace does not name the mode. CUDA graphs that compiled code launches are made by `reduce-overhead` and
`max-autotune`; kernels of matmul templates come of `max-autotune`, which may also choose none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepscope.derive.pytorch.compiled import Compiled
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_launch
from stepscope.intervals.arrays import NONE
from stepscope.model.profile import Profile

UNKNOWN = "unknown"
#: Kernels that inductor made of a template for a matrix product, which only autotuning does.
_TEMPLATE = r"^triton_(?:tem|mm|bmm)_\w*?(?:mm|bmm|addmm|baddbmm|convolution)"


def compile_mode(profile: Profile, by_rank: Mapping[int, Compiled]) -> dict[str, Any]:
    """`mode`, how it is known (`mode_from`), and what else was asked for, for a summary."""
    if heard := profile.compile_settings:
        return {"mode": _joined(heard, "mode"), "mode_from": "manifest"} | {
            key: _joined(heard, key) for key in ("backend", "dynamic", "fullgraph")
        }
    broken = any(marks.breaks.any() for marks in by_rank.values())
    # A break under fullgraph is an error: the run would have ended there.
    fullgraph = {"fullgraph": "no"} if broken else {}
    mode = _by_trace(profile, by_rank)
    return {"mode": mode, "mode_from": None if mode == UNKNOWN else "trace", **fullgraph}


def _joined(heard: list[dict[str, Any]], key: str) -> str:
    """`default`, or `default, reduce-overhead` where the program compiles in several ways."""
    words = {True: "yes", False: "no", None: "automatic"}
    return ", ".join(dict.fromkeys(str(words.get(each.get(key), each.get(key))) for each in heard))


def _by_trace(profile: Profile, by_rank: Mapping[int, Compiled]) -> str:
    replayed = any(_replays(data, by_rank[data.rank]) for data in ranks_of(profile))
    tuned = bool(profile.names.gather(profile.ops["name"].unique()).str.contains(_TEMPLATE).any())
    if tuned:
        return "max-autotune" if replayed else "max-autotune-no-cudagraphs"
    return "reduce-overhead or max-autotune" if replayed else UNKNOWN


def _replays(data: RankData, marks: Compiled) -> bool:
    """Whether compiled code launched CUDA graphs."""
    ops = np.flatnonzero(graph_launch(data) & (data.launch != NONE))
    if not len(ops) or not marks.any:
        return False
    tid = data.calls["tid"].to_numpy()[data.launch[ops]].astype(np.int64)
    return bool((marks.regions.nesting.enclosing(tid, data.launched_at[ops]) != NONE).any())
