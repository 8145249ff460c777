"""Every hostile input: one line and the right exit status from the commands that it broke; the right figure, or the
first line that says what contradicts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hostile_inputs import BASELINES, EXPORTS, LOGS, MANIFESTS, TRACES, Good, good

from marks import slow_unless
from stepscope.cli.main import run

#: So long may a command take; those that hung took minutes.
_LONGEST_S = 20


@dataclass(frozen=True)
class Expected:
    """What must come of an input."""

    #: the commands that it broke
    commands: tuple[str, ...]
    #: all of them are refused, with this in the line
    refused: str = ""
    #: answers say this in a note
    noted: str = ""
    #: answers begin with a doubt of this code
    doubted: str = ""
    #: figures of `breakdown` are the truth in spite of it, on the ranks that it has
    true: bool = False
    #: commands that lack what they need now
    cannot: tuple[str, ...] = field(default=())


_NO_NAME, _NO_TIME = "without name: treated as (no name)", "ops: left out 1 row without a time"
_FAR = "ops: left out 1 row at an impossible time (over a year from the others)"
_ALL = ("breakdown", "overlap", "diagnose")
_UNUSABLE = "rows is usable ("

EXPECTED: dict[str, Expected] = {
    "c01_call_name_missing.sqlite": Expected(("breakdown", "idle", "stragglers", "report"), noted=_NO_NAME, true=True),
    "c01b_no_stringids.sqlite": Expected(_ALL, doubted="kernels-without-name", cannot=("overlap",)),
    "c01c_kernel_name_missing.sqlite": Expected(("breakdown", "kernels", "launches"), noted=_NO_NAME, true=True),
    "c02_null_end.sqlite": Expected(("breakdown", "iterations", "idle", "kernels"), noted=_NO_TIME),
    "c02b_null_start.sqlite": Expected(("breakdown", "exposed", "collectives"), noted=_NO_TIME),
    "c03_text_deviceid.sqlite": Expected(("breakdown", "info"), noted="is not of its type", true=True),
    "c03b_blob_globalpid.sqlite": Expected(_ALL, doubted="launches-without-op", cannot=("overlap",)),
    "c03c_text_hwid.sqlite": Expected(("breakdown", "info"), true=True),
    "c03d_text_globaltid.sqlite": Expected(("breakdown", "info"), noted="rows of processes that are not ranks"),
    "c04_schema_damage.sqlite": Expected(("info", "breakdown"), refused="the SQLite database is damaged"),
    "c05_nvtx_far.sqlite": Expected(("breakdown", "report", "diagnose"), refused=f"{_UNUSABLE}rows at an impossible"),
    "c06_rank_without_kernels.sqlite": Expected(("breakdown", "diagnose", "report"), doubted="launches-without-op"),
    "c07_nvtx_no_start.sqlite": Expected(("breakdown", "window"), refused=f"{_UNUSABLE}rows without a time"),
    "c09_call_no_thread.sqlite": Expected(("breakdown", "idle", "launches"), true=True),
    "c09b_calls_no_thread_col.sqlite": Expected(("info", "idle", "kernels")),
    "n01_1MB_kernel_name.sqlite": Expected(("breakdown", "kernels", "timeline"), true=True),
    "v_endless_view.sqlite": Expected(("info", "breakdown"), refused="StringIds is a view, not a table of an export"),
    "w01_end_before_start.sqlite": Expected(_ALL, doubted="launches-without-op", cannot=("overlap",)),
    "w01b_one_end_before_start.sqlite": Expected(_ALL, noted="ops: left out 1 row whose end is before the start"),
    "w02_rows_twice.sqlite": Expected(("breakdown", "critical-path"), noted="rows that repeat others", true=True),
    "w03_ranges_backwards.sqlite": Expected(("iterations", "report"), refused=f"{_UNUSABLE}rows whose end is before"),
    "w04_ops_before_launch.sqlite": Expected(_ALL, doubted="ops-before-launch"),
    "w05_same_coordinates.sqlite": Expected(("breakdown", "stragglers"), doubted="coordinates-twice", true=True),
    "w06_pp_5_of_2.sqlite": Expected(
        ("breakdown", "setup"), noted="says pp=5/2: ignored, since it is not a valid mesh axis", true=True
    ),
    "w07_correlation_all_1.sqlite": Expected((*_ALL, "report"), doubted="launches-without-op"),
    "w08_third_of_kernels_gone.sqlite": Expected(("breakdown", "idle"), doubted="launches-without-op"),
    "ranges_10_years_late.sqlite": Expected(("breakdown",), noted="(its ranges lie 316224000 s or more from its GPU"),
    "ranges_never_closed.sqlite": Expected(("breakdown",), noted="ranges were never closed): the window is the whole"),
    "w09_kernel_10_years.sqlite": Expected(("breakdown", "kernels"), noted="length is more than the capture's"),
    "w14_null_end_in_window.sqlite": Expected(("breakdown", "iterations", "launches"), noted=_NO_TIME),
    "w15_far_kernel.sqlite": Expected(("breakdown", "window"), noted=_FAR),
    "w16_negative_start.sqlite": Expected(("breakdown", "window"), noted=_FAR),
    "c08_event_without_tid.pt.trace.json": Expected(
        ("breakdown", "nvtx"), noted="without tid: treated as -1", true=True
    ),
    "c10_no_dur.pt.trace.json": Expected(("breakdown", "report"), refused="events of a GPU or a host has a duration"),
    "c11_call_without_tid.pt.trace.json": Expected(
        ("breakdown", "overlap", "exposed", "idle"), noted="calls: 3 rows without tid: treated as -1", true=True
    ),
    "c12_1e999.pt.trace.json": Expected(("breakdown", "info"), noted="an impossible time"),
    "c12b_400digits.pt.trace.json": Expected(("info", "breakdown"), refused="a number out of range"),
    "c12c_deep_args.pt.trace.json": Expected(("info", "breakdown"), refused="values nested too deeply"),
    "c12d_deep_header.json": Expected(("info", "breakdown"), refused="values nested too deeply"),
    "c13_pid_no_host.pt.trace.json": Expected(("info", "breakdown"), noted="belong to no known rank"),
    "c14_all_memset.pt.trace.json": Expected(("breakdown", "critical-path", "rules"), cannot=("critical-path",)),
    "w10_half_without_dur.pt.trace.json": Expected(("breakdown", "idle"), doubted="launches-without-op"),
    "w11_kernels_4h_early.pt.trace.json": Expected(("breakdown", "diagnose"), doubted="ops-before-launch"),
    "w12_two_jobs": Expected(("info", "breakdown"), refused="is of a job of 4 ranks"),
    "w13_world_contradicts": Expected(("info", "breakdown"), refused="is of a job of 2 ranks"),
    "c17_log_big_k.jsonl": Expected(("pipeline",), refused="k is 10000000000000000000000, not between"),
    "c17b_log_big_t.jsonl": Expected(("pipeline",), refused="over 146 years"),
    "c17c_log_deep.jsonl": Expected(("pipeline", "info"), refused="values nested too deeply"),
    "c17d_log_1e5000000.jsonl": Expected(("pipeline",), refused="over 146 years"),
    "b_facts_dict.json": Expected(("gate",), refused="facts[...]: Expected `str`, got `object`"),
    "b_kind.json": Expected(("gate",), refused="kind: Invalid enum value 'zzz'"),
    "b_nan.json": Expected(("gate",), refused="cannot be read as a baseline"),
    "b_negative.json": Expected(("gate",), refused="Expected `float` >= 0.0"),
    "b_noruns.json": Expected(("gate",), refused="runs: Expected `array` of length >= 1"),
    "b_nosteps.json": Expected(("gate",), refused="Expected `array` of length >= 1"),
    "b_ranks_1e9.json": Expected(("gate",), refused="ranks: Expected `int` <= "),
    "b_warmup_inf.json": Expected(("gate",), refused="cannot be read as a baseline"),
    "m_captured_list": Expected(("capture verify",), refused="captured: Expected `object`, got `array`"),
    "m_no_captured": Expected(("capture verify",), refused="missing required field `captured`"),
    "m_no_scenario": Expected(("capture verify",), refused="missing required field `scenario`"),
    "m_step_ns_empty": Expected(("capture verify",), refused="captured.step_ns"),
    "m_step_str": Expected(("capture verify",), refused="captured.step_ns"),
    "m_traced_1": Expected(("capture verify",), refused="scenario.traced: Expected `array | null`, got `int`"),
}
INPUTS = {**EXPORTS, **TRACES, **LOGS, **BASELINES, **MANIFESTS}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Good:
    made = good(tmp_path_factory.mktemp("sound"))
    assert run(["gate", str(made.export), "--save", str(made.baseline)]) == 0
    return made


Asked = Callable[[str, Path], tuple[int, str, str]]


@pytest.fixture
def ask(sound: Good, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Asked:
    """A command about an input: its status, what it printed, and the line of its error."""

    def asked(command: str, path: Path) -> tuple[int, str, str]:
        line = [*command.split(), str(path), "--format", "json"]
        if command == "gate":
            line = ["gate", str(sound.export), "--baseline", str(path)]
        elif command in ("report", "rules", "capture verify"):
            line = [*command.split(), str(path), *(["-o", str(tmp_path / "out.html")] if command == "report" else [])]
        elif command in ("kernels", "timeline"):  # tables took their time with long names
            line = [command, str(path)]
        began = time.monotonic()
        status = run(line)
        assert time.monotonic() - began < _LONGEST_S
        out, err = capfd.readouterr()
        return status, out, err

    return asked


def not_twice(name: str) -> bool:
    """Reports and conclusions of a defect whose like is asked about in less."""
    return name[:4] not in ("c01_", "c01b", "c03b", "w01b", "w04_", "w07_", "w11_", "w12_")


@pytest.mark.parametrize("name", slow_unless(not_twice, EXPECTED))
def test_a_hostile_input(name: str, sound: Good, ask: Asked, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path, expected = INPUTS[name](sound, folder), EXPECTED[name]
    for command in expected.commands:
        status, out, err = ask(command, path)
        assert "this is a bug" not in err and "Traceback" not in err
        if expected.refused:
            assert (status, out) == (2, ""), command
            assert err.startswith("stepscope: ") and err.count("\n") == 1
            assert expected.refused in err
        elif command in expected.cannot:
            assert status == 3 and err.count("\n") == 1
        else:
            assert status == 0, err
        if status == 0 and out.startswith("{"):
            _look_at(json.loads(out), expected, sound)


def _look_at(answer: dict[str, Any], expected: Expected, sound: Good) -> None:
    notes = answer["note_details"]
    if expected.noted:
        assert any(expected.noted in note["text"] for note in notes), notes
    if expected.doubted:
        assert notes[0]["code"] == expected.doubted or expected.doubted in {n["code"] for n in notes[:2]}
    rows = answer["rows"]
    for row in rows:  # nothing negative, no part above the whole
        assert all(v >= 0 for k, v in row.items() if k.endswith(("_ns", "_pct")) and isinstance(v, int | float) and v)
        assert all(v <= 100 + 1e-6 for k, v in row.items() if k.endswith("_pct") and v is not None)
    if expected.true and answer["command"] == "breakdown":
        truth = {row["rank"]: row for row in sound.truth["breakdown"]["rows"]}
        assert rows
        for row in rows:
            assert {k: row[k] for k in truth[row["rank"]] if k.endswith("_ns")} == {
                k: v for k, v in truth[row["rank"]].items() if k.endswith("_ns")
            }


def test_all_memsets_are_copies(sound: Good, ask: Asked, tmp_path: Path) -> None:
    _, out, _ = ask("breakdown", TRACES["c14_all_memset.pt.trace.json"](sound, tmp_path))
    assert [row["compute_ns"] for row in json.loads(out)["rows"]] == [0]


def test_one_kernel_less_is_as_much_more_idle(sound: Good, ask: Asked, tmp_path: Path) -> None:
    """A kernel of ten years, of no end or of a far time is left out, and nothing else: the parts still sum."""
    (truth, *_) = sound.truth["breakdown"]["rows"]
    for name in ("w09_kernel_10_years.sqlite", "c02_null_end.sqlite", "w15_far_kernel.sqlite"):
        _, out, _ = ask("breakdown", EXPORTS[name](sound, tmp_path))
        row = json.loads(out)["rows"][0]
        lost = truth["compute_ns"] - row["compute_ns"]
        assert 0 <= lost < truth["compute_ns"] / 10
        assert row["idle_ns"] - truth["idle_ns"] == lost and row["window_ns"] == truth["window_ns"]
