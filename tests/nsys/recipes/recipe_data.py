"""Where the committed traces and what nsys's recipes wrote for them lie."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "data"
GOLDEN = DATA / "golden" / "nsys-recipe-2023.4.4"
