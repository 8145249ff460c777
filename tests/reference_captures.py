"""Captures of examples/moe_reference on an H200, and the diagnosis that each must get: capture/diagnoses.toml."""

from __future__ import annotations

import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE / "data" / "moe_reference"
BACKENDS = ("nsys", "torch")


@dataclass(frozen=True)
class Planted:
    """What was done to a run. `ids` are the findings of which one must come first; none of them for a healthy run."""

    name: str
    planted: str
    ids: tuple[str, ...]
    ranks: tuple[int, ...] | None


def planted() -> dict[str, Planted]:
    table = tomllib.loads((HERE / "capture" / "diagnoses.toml").read_text("utf-8"))
    return {
        name: Planted(name, row["planted"], tuple(row["ids"]), tuple(row["ranks"]) if "ranks" in row else None)
        for name, row in table.items()
    }


def unpack(name: str, backend: str, folder: Path) -> Path:
    """The capture's folder, as `capture run` leaves it: traces and manifest."""
    into = folder / backend / name
    if not into.exists():
        with tarfile.open(DATA / f"{name}.{backend}.tar.xz") as packed:
            packed.extractall(into, filter="data")
    return into
