"""Files of two profilers that recorded the same ranks: two captures of one job, not twice as many ranks."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.errors import BadInput
from stepscope.model import ranks
from stepscope.model.door import admitted
from stepscope.model.source import Source
from stepscope.sources.detect import kind_of

#: What a profiler is called, by how the formats of its files begin. The first is asked first: nsys disturbs a step
#: less, and has the ranks of a node on one clock.
PROFILERS = {"nsys": "nsys", "kineto": "torch.profiler"}


def captures(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """By profiler, the sources that make one profile each; one entry where all of them are one.

    What is of neither (measured kernels, logs) goes with the first. Where the two profilers recorded different ranks,
    they are ranks like any other.
    """
    if len(sources) == 1:
        return {"": list(sources)}
    by_profiler: dict[str, list[Source]] = {}
    rest = []
    for source in sources:
        name = _profiler_of(source)
        if name is None:
            rest.append(source)
        else:
            by_profiler.setdefault(name, []).append(source)
    if len(by_profiler) < 2 or _other_ranks(*by_profiler.values()):
        return {"": list(sources)}
    first, *others = (name for name in PROFILERS.values() if name in by_profiler)
    return {first: [*by_profiler[first], *rest], **{name: by_profiler[name] for name in others}}


def _profiler_of(source: Source) -> str | None:
    """By the beginning of the file: what a trace says of itself takes reading all of it."""
    try:
        kind = kind_of(source.path) or ""
    except BadInput:  # whoever reads it says why
        return None
    return next((name for form, name in PROFILERS.items() if kind.startswith(form)), None)


def _other_ranks(one: list[Source], other: list[Source]) -> bool:
    """Whether both state their ranks, and none is in both."""
    stated = [_stated(one), _stated(other)]
    return None not in stated and not set(stated[0] or ()) & set(stated[1] or ())


def _stated(sources: list[Source]) -> list[int] | None:
    """The ranks of some files; None where one of them has to be inferred. A trace is not read where its name tells."""
    sizes: list[int] = []
    for source in sources:
        named = ranks.rank_in_name(source.path) if _profiler_of(source) == PROFILERS["kineto"] else None
        if named is not None:
            sizes.append(named)
            continue
        try:
            table, _ = ranks.assign([admitted(source)])
        except BadInput:  # two processes of one rank: whoever opens it says so
            return None
        if (table["rank_from"] == ranks.INFERRED).any():
            return None
        sizes += table["rank"].to_list()
    return sizes
