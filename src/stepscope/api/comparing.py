"""Two sides of a comparison, as users name them: profiles, paths or a saved baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union, Unpack

from stepscope import progress
from stepscope.api.analysing import shown_as
from stepscope.api.opening import open_runs
from stepscope.api.options import Ranks, parse_ranks
from stepscope.errors import BadInput, GateFailed
from stepscope.model import profile as model
from stepscope.model.result import Result

if TYPE_CHECKING:
    from stepscope.api.profile import Profile
    from stepscope.compare import measuring
    from stepscope.compare.side import Side
    from stepscope.compare.steps import StepSpec
    from stepscope.compare.why import Evidence, Gather

#: One side of a comparison: a profile or several runs; paths, as the command line has them; or a saved baseline.
Given = Union["Profile", str, Path, Sequence["Profile"], Sequence[str | Path]]


By = Literal["part", "stage", "rank", "family", "kernel"]


class Choosing(TypedDict, total=False):
    """Which ranks and steps are compared, and how paths are opened."""

    rank: Ranks | None
    anchor: str | None
    step: bool
    chunk: bool
    whole: bool
    warmup: int
    runs: Literal["auto", "one", "folder", "file"]
    cache: bool
    nsys: str | None
    taxonomy: str | Path | None
    labels: str | Path | None
    jobs: int | None
    cluster: str | None


def compare(
    base: Given,
    new: Given,
    *,
    by: By = "part",
    margin: float = 3.0,
    top: int = 20,
    gate: bool = False,
    **options: Unpack[Choosing],
) -> Result:
    """What changed from `base` to `new`, and is it more than noise? See docs/compare.md.

    A side is a profile, a list of profiles (runs of the same), or paths; the base also a saved baseline, by its name or
    file. Further options choose ranks and steps, and how paths are opened: see `Choosing`. With `gate`,
    `GateFailed` where the step is more than 2 % longer, or nobody can tell.
    """
    from stepscope.compare.compare import compare as compared
    from stepscope.compare.gate import gate as checked
    from stepscope.compare.gate import parse_limits

    sides, gather = _sides(base, new, options)
    result = compared(*sides, by=by, margin=margin, top=top, gather=gather)
    shown_as(result)
    if gate:
        try:
            checked(*sides, parse_limits(None, ()))
        except GateFailed as failed:
            failed.result = result
            raise
    return result


def gate(
    base: Given,
    new: Given,
    *,
    limits: Iterable[str] = (),
    limits_file: str | Path | None = None,
    allow_inconclusive: bool = False,
    **options: Unpack[Choosing],
) -> Result:
    """Is `new` within limits of `base`? `GateFailed`, whose `result` says why, where it is not; see docs/compare.md."""
    from stepscope.compare.gate import gate as checked
    from stepscope.compare.gate import parse_limits

    wanted = parse_limits(None if limits_file is None else Path(limits_file), limits)  # before anything is read
    sides, _ = _sides(base, new, options)
    try:
        result = checked(*sides, wanted, allow_inconclusive=allow_inconclusive)
    except GateFailed as failed:
        shown_as(failed.result)
        raise
    shown_as(result)
    return result


def save_baseline(given: Given, name: str, **options: Unpack[Choosing]) -> Path:
    """Keep what a later run is to be compared with: one small file, by name (below `.stepscope`) or by path."""
    from stepscope.compare import baseline

    path = baseline.path_of(name)
    spec, ranks, opening = _chosen(options)
    opened = _given(given, opening)
    spec = _by_labels(spec, opened)
    baseline.save(path, opened.side(spec, ranks), spec)
    return path


def _sides(base: Given, new: Given, options: Choosing) -> tuple[tuple[Side, Side], Gather]:
    """Both sides, measured by the same rule: a baseline's, where one was saved. And how to ask why they differ."""
    from stepscope.api.explaining import evidence
    from stepscope.compare import baseline
    from stepscope.compare.measuring import both
    from stepscope.compare.why import nothing_known

    spec, ranks, opening = _chosen(options)
    file = _baseline(base)
    if (last := _baseline(new)) is not None:
        raise BadInput(f"{last}: a baseline can only be the base", "name it first: compare BASELINE --to PROFILE")
    if file is None:
        given = _given(base, opening), _given(new, opening)
        spec = _by_labels(spec, given[0])

        def gather() -> tuple[Evidence, Evidence]:
            sides = []
            for name, side in progress.each("why it changed:", (("base", given[0]), ("new", given[1]))):
                with progress.phase(name):
                    sides.append(evidence(side.profiles, spec, ranks))
            return sides[0], sides[1]

        return _same_labels(both(*given, spec, ranks)), gather
    saved, rule = baseline.load(file)
    given_new = _given(new, opening)
    if spec not in (type(spec)(), rule):
        raise BadInput(
            f"{file}: was saved with other steps", "leave out --anchor, --step, --chunk, --whole and --warmup"
        )
    return _same_labels((saved, given_new.side(rule, ranks))), nothing_known


def _by_labels(spec: StepSpec, given: measuring.Given) -> StepSpec:
    """The window of the trainer's labels, where the user chose none."""
    anchor = given.profiles[0].labels.anchor
    chosen = spec.anchor is not None or spec.whole or spec.unit is not None
    return spec if chosen or anchor is None else replace(spec, anchor=anchor)


def _same_labels(sides: tuple[Side, Side]) -> tuple[Side, Side]:
    """Steps and stages by different rules are not the same thing: refused, not compared."""
    base, new = (side.facts.get("labels", "default") for side in sides)
    if base != new:
        raise BadInput(f"the base was read by other labels ({base}) than the new run ({new})", "give the same --labels")
    return sides


def _chosen(given: Choosing) -> tuple[StepSpec, list[int] | None, dict[str, Any]]:
    """The rule for steps, the ranks, and what is left: how paths are opened."""
    from stepscope.compare.steps import StepSpec

    options: dict[str, Any] = dict(given)
    rank = options.pop("rank", None)
    ranks = None if rank is None else parse_ranks(rank)
    step, chunk = (options.pop(k, False) for k in ("step", "chunk"))
    if step and chunk:
        raise BadInput("--step and --chunk cannot be combined", "give one")
    unit: Literal["step", "chunk"] | None = "step" if step else "chunk" if chunk else None
    spec = StepSpec(unit=unit, **{k: options.pop(k) for k in ("anchor", "whole", "warmup") if k in options})
    return spec, ranks, options


def _baseline(given: Given) -> Path | None:
    """The file of a saved baseline, where that is what was given: its path, or its name."""
    from stepscope.compare.baseline import is_baseline, path_of, saved

    paths = [given] if isinstance(given, str | Path) else given if isinstance(given, list | tuple) else []
    one = paths[0] if len(paths) == 1 else None
    if not isinstance(one, str | Path):
        return None
    if not Path(one).exists() and str(one) in saved():
        return path_of(str(one))
    return Path(one) if is_baseline(Path(one)) else None


def _given(given: Given, options: dict[str, Any]) -> measuring.Given:
    """The runs of a side: profiles as they are, paths opened."""
    from stepscope.compare import measuring

    listed = [given] if isinstance(given, str | Path | model.Profile) else list(given)
    if not listed:
        raise BadInput("nothing to compare", "name a trace, a directory or a glob")
    opened = [p for p in listed if isinstance(p, model.Profile)]
    runs = ""
    if len(opened) != len(listed):
        more, runs = open_runs(*(p for p in listed if isinstance(p, str | Path)), **options)
        opened += more
    return measuring.Given(opened, [path for p in opened for path in getattr(p, "paths", [])], runs)
