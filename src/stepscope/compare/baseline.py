"""A side kept in one small file: its steps by part, stage and family, and what it takes to compare with them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.capture.manifest import told
from stepscope.compare.run import PARTS, Run, Table
from stepscope.compare.saved import KEPT, Saved, SavedRun
from stepscope.compare.side import Side
from stepscope.compare.steps import StepSpec
from stepscope.errors import BadInput, meant_of
from stepscope.files import whole

NAME = "stepscope-baseline"
VERSION = 2
#: Where baselines that are given by name lie, below the directory that the command runs in: to be committed.
FOLDER = Path(".stepscope") / "baselines"
_AGAIN = "save it again: stepscope gate … --save"
#: Longer runs are thinned: a median of this many steps is as good.
_MOST_STEPS = 200


def path_of(name: str) -> Path:
    """The file of a baseline, given by name or by path."""
    if not name:
        raise BadInput("an empty name for a baseline", "give a name, or a path that ends in .json")
    if "/" in name or "\\" in name or name.endswith(".json"):
        return Path(name)
    if not re.fullmatch(r"[\w.+-]+", name):
        raise BadInput(f"{name!r}: not a name for a baseline", "use letters, digits, - and _; or give a path")
    return FOLDER / f"{name}.json"


def save(path: Path, side: Side, spec: StepSpec) -> None:
    """Write the side, complete or not at all."""
    body = {
        "schema": f"{NAME}/{VERSION}",
        "facts": side.facts,
        "spec": asdict(spec),
        "scenario": (side.manifest or {}).get("scenario"),
        "runs": [_run(r) for r in side.runs],
    }
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    text = re.sub(r'("(?:facts|labels|runs|scenario|schema|spec|tables|kind|family|part|stage)":)', r"\n\1", text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--save {path}: cannot make its folder ({error.strerror})", "choose another file") from None
    whole.write(path, f"{text}\n".encode(), "--save {}")


def _run(run: Run) -> dict[str, Any]:
    every = 1 if run.kind == "chunk" else max(1, -(-len(run.labels) // _MOST_STEPS))
    return {
        "kind": run.kind,
        "ranks": len(run.ranks),
        "labels": run.labels if run.kind == "chunk" else [run.labels[0], run.labels[-1]],
        "tables": {by: _packed(run.tables[by], every) for by in KEPT},
    }


def _packed(table: Table, every: int) -> dict[str, dict[str, list[float]]]:
    """By key and part, the nanoseconds of each step; what is zero throughout is left out."""
    tables: dict[str, dict[str, list[float]]] = {}
    for i, key in enumerate(table.keys):
        columns = table.ns[::every, i]
        tables[key] = {p: _numbers(columns[:, k]) for k, p in enumerate(PARTS) if columns[:, k].any()}
    return tables


def _numbers(values: Any) -> list[float]:
    """Means over ranks are fractions of a nanosecond: two digits of it keep sums exact to the nanosecond."""
    return [int(v) if float(v).is_integer() else round(float(v), 2) for v in values]


def saved() -> list[str]:
    """Names of the baselines below the directory that the command runs in."""
    return sorted(p.stem for p in FOLDER.glob("*.json"))


def same(base: Side, new: Side) -> bool:
    """Whether both sides are the same captures, one of them perhaps as it was saved."""
    sides = ([_run(run)["tables"]["part"] for run in side.runs] for side in (base, new))
    return next(sides) == next(sides)


def is_baseline(path: Path) -> bool:
    """Whether a file is a baseline, of whatever version: by its first bytes."""
    try:
        with path.open("rb") as file:
            return b'"schema":"' + NAME.encode() in file.read(100_000).replace(b'": "', b'":"')
    except OSError:
        return False


def load(path: Path) -> tuple[Side, StepSpec]:
    """The side that was saved, and how its steps were chosen."""
    if not path.is_file():
        there = sorted(p.stem for p in path.parent.glob("*.json")) if path.parent.is_dir() else []
        hint = meant_of(path.stem, there[:8]) if there else f"save one: stepscope gate PROFILE --save {path.stem}"
        raise BadInput(f"{path}: no such baseline", hint)
    try:
        body = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # the last where values are nested too deeply
        raise BadInput(f"{path}: cannot be read as a baseline", _AGAIN) from None
    _check_version(path, body)
    try:
        saved = msgspec.convert(body, Saved)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: not a valid baseline: {told(error)}", _AGAIN) from None
    runs = [_unpacked(run) for run in saved.runs]
    side = Side(runs, dict(saved.facts), {"scenario": saved.scenario} if saved.scenario else None)
    side.said = f"the baseline {path.stem}: {len(runs)} run{'s' * (len(runs) != 1)}, {side.steps} steps"
    return side, StepSpec(**msgspec.structs.asdict(saved.spec))


def _check_version(path: Path, body: Any) -> None:
    schema = body.get("schema") if isinstance(body, dict) else None
    name, _, number = str(schema).partition("/")
    if name != NAME or not re.fullmatch("[0-9]{1,9}", number):
        raise BadInput(f"{path}: no baseline", "give a file that `stepscope gate PROFILE --save NAME` wrote")
    if int(number) < VERSION:
        raise BadInput(
            f"{path}: saved when a step was measured from its first op to the next step's; it is now measured "
            "from end to end",
            "save the baseline again: stepscope gate … --save",
        )
    if int(number) > VERSION:
        raise BadInput(
            f"{path}: written by a newer stepscope (schema {schema}, this one knows {NAME}/{VERSION})",
            "update stepscope, or save the baseline again",
        )


def _unpacked(saved: SavedRun) -> Run:
    steps = saved.steps
    tables = {}
    for by, content in saved.tables.items():
        ns = np.zeros((steps, len(content), len(PARTS)))
        for i, columns in enumerate(content.values()):
            for part, values in columns.items():
                ns[:, i, PARTS.index(part)] = values
        tables[by] = Table(list(content), ns, np.ones((steps, len(content))))
    labels = saved.labels if saved.kind == "chunk" else [str(k) for k in range(steps)]
    return Run(labels, saved.kind, list(range(saved.ranks)), tables)
