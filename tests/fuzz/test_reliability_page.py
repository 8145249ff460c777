"""docs/reliability.md says what the results say: made of results that are written here, and nothing besides."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import mutants
import pytest

_DOCS = Path(__file__).resolve().parents[2] / "docs"

_FUZZ = {
    "suite": "fuzz", "inputs": 123456, "minutes": 49.5, "options": "--seed 7",
    "kinds": {"sqlite": {"answered": 1000, "refused": 234, "failed": 0}},
    "questions": {"answered": 200000, "cannot": 1, "refused": 2}, "effects": {"same": 11, "told": 22, "free": 3},
    "unexpected": 0, "hang": 1, "impossible": 2, "silent": 3,
}  # fmt: skip
_GOOD = {
    "suite": "good", "questions": 20123, "traces": 263, "minutes": 17.5, "options": "--seed 9",
    "ended": {"answered": 11001, "cannot": 5002, "refused": 4120}, "slow": 31, "unexpected": 32, "impossible": 33,
}  # fmt: skip
_RELATIONS = {"traces": 41, "relations": {"shift all times": {"answers": 1189, "violations": 42}}}
_KILLS = {"suite": "kills", "runs": 501, "damaged": 4, "left_processes": 5, "debris": 6, "wrong_exit": 7}
_CASE = {"what": "rank files", "size": "10,000", "cpu_s": 12.34, "ratio": 2.04, "peak_mb": 1234.5}
_SOAK = {
    "suite": "soak", "served": "serve", "requests": 54321, "minutes": 10, "rss_start_mb": 210.4, "rss_end_mb": 215.6,
    "fds_start": 21, "fds_end": 22, "errors": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reliability_page", _DOCS / "reliability_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _page(made: ModuleType, folder: Path, **results: object) -> str:
    for name, content in results.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return "\n".join(made.page(lambda header, rows: map(" | ".join, [header, *rows]), folder))


def test_every_figure_is_on_it(made: ModuleType, tmp_path: Path) -> None:
    page = _page(made, tmp_path, fuzz=_FUZZ, kills=_KILLS, scale={"cases": [_CASE], "hangs": 9}, soak=[_SOAK])
    assert "123,456 damaged inputs in one run of 49.5 minutes" in page
    assert "unexpected errors | 0\nover 30 seconds of a processor | 1" in page and "in silence | 3" in page
    assert "| 1,234 | 1,000 | 234" in page
    more = _page(made, tmp_path, good=_GOOD, relations=_RELATIONS)
    assert "20,123 questions about 263 undamaged traces" in more and "unexpected errors | 32" in more
    assert "over 30 seconds of a processor | 31" in more and "the whole) | 33" in more
    assert "11,001 were answered, of 5,002" in more and "shift all times | 1,189 | 42" in more
    assert "501 runs" in page and "running | 5" in page and "documented | 7" in page
    assert "rank files | 10,000 | 12.3 s | 2.0 | 1,234 MB" in page and "9 did not end" in page
    assert "`serve` | 54,321 | 10 | 210 → 216 MB | 21 → 22 | 8" in page
    gpt = {
        "files": 12,
        "whole": 11,
        "parts": {"weights": {"n": 12, "most_pct": 0.49}, "states": {"n": 1, "most_pct": 2}},
    }
    moe = {"files": 1, "whole": 0, "parts": {"weights": {"n": 1, "most_pct": 1.5}}}
    memory = _page(made, tmp_path, snapshots={"a/gpt": gpt, "b/moe": moe})
    assert "repositories: 13, all of them read. Of 11 of 13" in memory
    assert "a/gpt | 12 | 11 | 0.49 % | 2.00 %" in memory and "b/moe | 1 | 0 | 1.50 % | " in memory


def test_every_script_takes_the_scale() -> None:
    """`make reliability ARGS=quick` starts each of them so: two took it for something else, and failed."""
    for script in (_DOCS.parent / "tests" / "reliability").glob("[!_]*.py"):
        assert "[quick|full" in script.read_text("utf-8").split('"""')[1], script.name


def test_a_section_without_results_is_left_out(made: ModuleType, tmp_path: Path) -> None:
    assert "##" not in _page(made, tmp_path)
    page = _page(made, tmp_path, soak=_SOAK)
    assert page.count("## ") == 1 and "## Long" in page


def test_every_kind_of_input_has_a_name(made: ModuleType) -> None:
    assert set(made.KINDS) == set(mutants.KINDS)
