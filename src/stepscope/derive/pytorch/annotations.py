"""What a program noted of the nodes of its CUDA graphs when it captured them (`torch.cuda.graph_annotations`).

A replay has no torch ops and no Python: its kernels belong to a launch of the whole graph. Where the program marked
what it captured (`mark_kernels("layers.0.mlp")`), the trace says it of every replay: the module, the pass and, where
stacks were added to the annotation, the line that launched it then.
"""

from __future__ import annotations

import polars as pl

from stepscope.derive.pytorch.frames import is_user, relative
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.graphs import graph_launch
from stepscope.model.profile import Profile

#: A frame of torch's stacks of captured nodes.
_FRAME = r"^(?P<file>.*):(?P<line>\d+):(?P<function>[^:]*)$"
_NOTED = ("annotation", "annotation_phase", "annotation_stack")


def noted_at_capture(data: RankData) -> pl.DataFrame | None:
    """By GPU op of the rank: `module`, `phase` and `frame` (`file(line): function`); None where nothing was noted."""
    return data.once(_annotations)


def _annotations(data: RankData) -> pl.DataFrame | None:
    if not any(source.format.startswith("kineto") for source in data.profile.sources):
        return None
    if not graph_launch(data).any():
        return None
    return data.profile.once(_by_rank)[data.rank]


def _by_rank(profile: Profile) -> dict[int, pl.DataFrame | None]:
    return {rank: _of(profile, frame) for rank, frame in profile.by_rank("ops", detail=True)}


def _of(profile: Profile, ops: pl.DataFrame) -> pl.DataFrame | None:
    if all(ops[column].null_count() == ops.height for column in _NOTED):
        return None
    names = profile.names
    module, phase, stack = (names.gather(ops[column].cast(pl.Int64)) for column in _NOTED)
    return pl.DataFrame({"module": module, "phase": phase, "frame": _innermost(stack)})


def _innermost(stacks: pl.Series) -> pl.Series:
    """The innermost frame of the user's code of each stack; where all are of libraries, the innermost."""
    distinct = stacks.drop_nulls().unique()
    frames = {stack: _frame(stack) for stack in distinct.to_list()}
    return stacks.replace_strict(frames, default=None, return_dtype=pl.String) if frames else stacks


def _frame(stack: str) -> str | None:
    lines = pl.Series("frame", stack.splitlines(), dtype=pl.String).str.extract_groups(_FRAME).struct.unnest()
    lines = lines.drop_nulls()
    if not lines.height:
        return None
    texts = relative(lines["file"]) + "(" + lines["line"] + "): " + lines["function"]
    own = texts.filter(pl.Series(is_user(texts)))
    return str((own if len(own) else texts)[0])
