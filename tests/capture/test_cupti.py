"""torch's CUPTI backend (torch 2.15), as `annotate` asks for it: against stand-ins, and torch where it is there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stepscope
from stepscope.annotate import cupti


class _Config:
    """Of torch: keeps what it is given."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.args, self.options = args, options


NEW = SimpleNamespace(CuspyConfig=_Config, PerformanceMetricsConfig=_Config, ProfilerActivityConfig=_Config)


def test_what_was_wanted_is_configured() -> None:
    made = cupti.configuration(NEW, {"clocks", "pm"})
    backend, sampling = made.options["profiler_configs"]
    assert backend.options == {"enable_environment_counters": True, "enable_graph_dependencies": False}
    assert all("pct_of_peak" in name for name in sampling.args[0]) and len(sampling.args[0]) == 4
    (backend,) = cupti.configuration(NEW, {"graph"}).options["profiler_configs"]
    assert backend.options == {"enable_environment_counters": False, "enable_graph_dependencies": True}


def test_an_older_torch_says_so() -> None:
    with pytest.raises(RuntimeError, match="--with clocks,graph needs torch 2"):
        cupti.configuration(SimpleNamespace(), {"graph", "clocks"})


def test_notes_of_nodes_have_their_stacks() -> None:
    module = SimpleNamespace(
        get_kernel_annotations=lambda: {1: [{"name": "mlp"}], 2: [{"name": "norm", "stack": "own"}]},
        get_kernel_py_stacks=lambda: {1: "model.py:3:f", 2: "other", 3: "train.py:9:g"},
    )
    assert cupti.graph_notes(module) == {
        1: [{"name": "mlp", "stack": "model.py:3:f"}],
        2: [{"name": "norm", "stack": "own"}],
        3: [{"stack": "train.py:9:g"}],
    }
    assert cupti.graph_notes(None) == cupti.graph_notes(SimpleNamespace()) == {}


def test_stacks_are_annotations_for_the_cupti_backend() -> None:
    """It takes no mapping, and asks torch's own for every node."""
    kept: dict[int, dict[str, str]] = {1: {"name": "mlp"}, 2: {"name": "norm", "stack": "own"}}

    def record(node: int, note: dict[str, str]) -> None:
        for key, value in note.items():
            kept.setdefault(node, {}).setdefault(key, value)

    stacks = {1: "model.py:3:f", 2: "other", 3: "train.py:9:g"}
    cupti.stacks_as_notes(SimpleNamespace(record_node_annotation=record, get_kernel_py_stacks=lambda: stacks))
    assert kept[1]["stack"] == "model.py:3:f" and kept[2]["stack"] == "own" and kept[3] == {"stack": "train.py:9:g"}
    cupti.stacks_as_notes(None)
    cupti.stacks_as_notes(SimpleNamespace())


@pytest.mark.parametrize("takes", (True, False))
def test_they_are_given_to_a_torch_that_takes_them(takes: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    given: list[Mapping[int, Any] | None] = []

    class New:
        def export_chrome_trace(self, path: str, cuda_graph_annotations: Mapping[int, Any] | None = None) -> None:
            given.append(cuda_graph_annotations)
            (tmp_path / "t.json").touch()

    class Old:
        def export_chrome_trace(self, path: str) -> None:
            given.append(None)
            (tmp_path / "t.json").touch()

    noted = SimpleNamespace(get_kernel_annotations=lambda: {7: [{"name": "mlp"}]})
    monkeypatch.setitem(cupti.sys.modules, "torch.cuda._graph_annotations", noted)
    cupti.export(New() if takes else Old(), str(tmp_path / "t.json"))
    assert given == [{7: [{"name": "mlp"}]} if takes else None]


def test_a_trace_that_was_not_written_is_an_error(tmp_path: Any) -> None:
    with pytest.raises(RuntimeError, match="CUPTI backend wrote nothing"):
        cupti.export(SimpleNamespace(export_chrome_trace=lambda path: None), str(tmp_path / "none.json"))


@pytest.mark.slow
def test_torch_takes_the_configuration(torch_python: str) -> None:
    """Its own classes, where it has them: it refuses an unknown option, and a profile without CPU activity."""
    text = (
        "import torch, stepscope.annotate.cupti as p\n"
        "try:\n    c = p.configuration(torch.profiler, {'graph', 'clocks', 'pm'})\n"
        "except RuntimeError as e:\n    print(e)\n"
        "else:\n    print(type(c).__name__, [type(x).__name__ for x in c.profiler_configs])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(stepscope.__file__).parents[1])}
    done = subprocess.run([torch_python, "-c", text], capture_output=True, text=True, check=False, env=env)
    said = "ProfilerActivityConfig ['CuspyConfig', 'PerformanceMetricsConfig']"
    assert done.stdout.strip() == said or "needs torch 2.15 or newer" in done.stdout, done.stderr
