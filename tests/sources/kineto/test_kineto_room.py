"""Where there is no room for the tables of all files, they are let go and read again: the same, and noted once."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_files import event, kernel, rows, write

from stepscope.files import budget
from stepscope.sources.kineto import source as module
from stepscope.sources.kineto.source import KinetoSource


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were parsed, in order."""
    names: list[str] = []
    trace = module._Trace

    def counted(path: Path, *more: object) -> object:
        names.append(path.name)
        return trace(path, *more)

    monkeypatch.setattr(module, "_Trace", counted)
    return names


def traces(folder: Path) -> list[KinetoSource]:
    odd = event("made_up", "x", 1)
    names = ("rank0.json", "rank1.json")
    return [KinetoSource(write(folder, [kernel(n, 1), event("cuda_runtime", n, 1), odd], n)) for n in names]


@pytest.mark.parametrize(("used", "times"), [(0, 1), (1 << 62, 2)])
def test_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[str], used: int, times: int) -> None:
    monkeypatch.setattr(budget, "used", lambda: used)
    first, second = traces(tmp_path)
    assert first.tables() == second.tables() == {"ops", "calls"}
    for source in (first, second):
        for table in ("ops", "calls"):  # one after the other: parsed once for both
            assert [row["name"] for row in rows(source, table)] == [source.path.name]
        assert source.quality.notes == ["1 events of the unknown category 'made_up' left out"]
    assert sorted(parsed) == sorted(["rank0.json", "rank1.json"] * times)
