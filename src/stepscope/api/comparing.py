"""Two sides of a comparison, as users name them: profiles, paths or a saved baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

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

#: One side of a comparison: a profile or several runs; paths, as the command line has them; or a saved baseline.
Given = Union["Profile", str, Path, Sequence["Profile"], Sequence[str | Path]]


def compare(
    base: Given,
    new: Given,
    *,
    by: Literal["part", "stage", "rank", "family", "kernel"] = "part",
    margin: float = 3.0,
    top: int = 20,
    gate: bool = False,
    rank: Ranks | None = None,
    **options: Any,
) -> Result:
    """What changed from `base` to `new`, and is it more than noise? See docs/compare.md.

    A side is a profile, a list of profiles (runs of the same), paths, or a saved baseline. Further options choose the
    steps (anchor, step, chunk, whole, warmup), and how paths are opened (runs, cache, nsys, taxonomy). With `gate`,
    `GateFailed` where the step is more than 2 % longer, or nobody can tell.
    """
    from stepscope.compare.compare import compare as compared
    from stepscope.compare.gate import gate as checked
    from stepscope.compare.gate import parse_limits

    sides = _sides(base, new, rank, options)
    result = compared(*sides, by=by, margin=margin, top=top)
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
    rank: Ranks | None = None,
    **options: Any,
) -> Result:
    """Is `new` within limits of `base`? `GateFailed`, whose `result` says why, where it is not; see docs/compare.md."""
    from stepscope.compare.gate import gate as checked
    from stepscope.compare.gate import parse_limits

    wanted = parse_limits(None if limits_file is None else Path(limits_file), limits)  # before anything is read
    sides = _sides(base, new, rank, options)
    return checked(*sides, wanted, allow_inconclusive=allow_inconclusive)


def save_baseline(given: Given, name: str, *, rank: Ranks | None = None, **options: Any) -> Path:
    """Keep what a later run is to be compared with: one small file, by name (below `.stepscope`) or by path."""
    from stepscope.compare import baseline

    path = baseline.path_of(name)
    spec = _step_spec(options)
    ranks = None if rank is None else parse_ranks(rank)
    baseline.save(path, _given(given, options).side(spec, ranks), spec)
    return path


def _sides(base: Given, new: Given, rank: Ranks | None, options: dict[str, Any]) -> tuple[Side, Side]:
    """Both sides, measured by the same rule: a baseline's, where one was saved."""
    from stepscope.compare import baseline
    from stepscope.compare.measuring import both

    spec = _step_spec(options)
    ranks = None if rank is None else parse_ranks(rank)
    file = _baseline(base)
    if (last := _baseline(new)) is not None:
        raise BadInput(f"{last}: a baseline can only be the base", "name it first: compare BASELINE --to PROFILE")
    if file is None:
        return both(_given(base, options), _given(new, options), spec, ranks)
    saved, rule = baseline.load(file)
    if spec not in (type(spec)(), rule):
        raise BadInput(
            f"{file}: was saved with other steps", "leave out --anchor, --step, --chunk, --whole and --warmup"
        )
    return saved, _given(new, options).side(rule, ranks)


def _step_spec(options: dict[str, Any]) -> StepSpec:
    from stepscope.compare.steps import StepSpec

    step, chunk = (options.pop(k, False) for k in ("step", "chunk"))
    if step and chunk:
        raise BadInput("--step and --chunk exclude each other", "give one")
    unit: Literal["step", "chunk"] | None = "step" if step else "chunk" if chunk else None
    return StepSpec(unit=unit, **{k: options.pop(k) for k in ("anchor", "whole", "warmup") if k in options})


def _baseline(given: Given) -> Path | None:
    from stepscope.compare.baseline import is_baseline

    paths = [given] if isinstance(given, str | Path) else given if isinstance(given, list | tuple) else []
    one = paths[0] if len(paths) == 1 else None
    return Path(one) if isinstance(one, str | Path) and is_baseline(Path(one)) else None


def _given(given: Given, options: dict[str, Any]) -> measuring.Given:
    """The runs of a side: profiles as they are, paths opened."""
    from stepscope.compare import measuring

    listed = [given] if isinstance(given, str | Path | model.Profile) else list(given)
    if not listed:
        raise BadInput("nothing to compare", "name a trace, a directory or a glob")
    opened = [p for p in listed if isinstance(p, model.Profile)]
    said = ""
    if len(opened) != len(listed):
        found, said = open_runs(*(p for p in listed if isinstance(p, str | Path)), **options)
        opened += found
    return measuring.Given(opened, [path for p in opened for path in getattr(p, "paths", [])], said)
