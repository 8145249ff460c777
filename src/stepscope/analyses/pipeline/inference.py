"""The schedule that chunks show: what ranges name, and what the order of chunks says."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from stepscope.derive.pipelines.schedules import Shape
from stepscope.errors import BadInput


class Piece(Struct, frozen=True):
    """What a range says it does: `f`, `b` or `w` of a micro-batch, in one of the rank's virtual stages."""

    kind: str
    mb: int | None
    part: int | None


def pieces(text: str, patterns: Sequence[str]) -> tuple[Piece, ...]:
    """The work that a range's text names, by the first pattern that knows it; an overlapped chunk names two pieces."""
    for pattern in patterns:
        if matches := [match.groupdict() for match in re.finditer(pattern, text)]:
            return tuple(Piece(_kind(f["kind"]), _number(f.get("mb")), _number(f.get("part"))) for f in matches)
    return ()


def _kind(word: str) -> str:
    """`f`, `b` or `w`; torch's I is the gradient of the input."""
    letter = word[:1].lower()
    if letter not in ("f", "b", "i", "w"):
        raise BadInput(
            f"--labels: micro_batch: {word!r} is not a kind of work",
            "let (?P<kind>…) match forward, backward or weight",
        )
    return "b" if letter == "i" else letter


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def infer(
    chunks: pl.DataFrame, stages: int | None, schedule: str | None, micro_batches: int | None, given_stages: int | None
) -> Shape:
    """The shape from `chunks` (see `chunks`) of all ranks; what is given by hand counts."""
    for option, given in (("--micro-batches", micro_batches), ("--stages", given_stages)):
        if given is not None and given < 1:
            raise BadInput(f"{option}: {given} is not a number of them", "give 1 or more")
    inferred = []
    one = chunks.filter((pl.col("rank") == chunks["rank"].min()) & (pl.col("step") == 0)) if chunks.height else chunks
    forward = one.filter(pl.col("kind").str.contains("f"))
    if micro_batches is None and forward.height and forward["mb"].null_count() < forward.height:
        micro_batches = int(forward["mb"].n_unique())
        inferred.append(f"{micro_batches} micro-batches from labels")
    virtual = int(forward["part"].n_unique()) if forward.height else 1
    if schedule is None and chunks.height:
        schedule = _order(chunks, virtual)
        if schedule is not None:
            inferred.append(f"schedule {schedule} from labels and their order")
    if given_stages is None and stages is not None:
        inferred.append(f"{stages} stages from setup labels")
    return Shape(schedule, given_stages or stages, micro_batches, virtual, tuple(inferred))


def _order(chunks: pl.DataFrame, virtual: int) -> str | None:
    kinds = set(chunks["kind"].unique().to_list())
    if "fb" in kinds:
        return "dualpipev"
    if "f" not in kinds or not {"b", "bw"} & kinds:
        return None
    if "w" in kinds:
        return "zero-bubble"
    if virtual > 1:
        return "interleaved"
    # The last stage has nothing to warm up: under 1F1B its second chunk is a backward pass already.
    last = chunks.filter((pl.col("stage") == pl.col("stage").max()) & (pl.col("step") == 0))
    last = (last if last.height else chunks).filter(pl.col("rank") == pl.col("rank").max()).sort("start_ns")
    n = last.filter(pl.col("kind") == "f").height
    if n < 2:
        return None
    return "gpipe" if last["kind"].head(n).to_list() == ["f"] * n else "1f1b"
