"""Two-stage pipelines from logs written by hand: every figure computed on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake import Row, make
from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.sources.detect import kind_of

Line = dict[str, Any]


def write(path: Path, lines: list[Line | str]) -> Path:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines) + "\n")
    return path


def chunk(k: int, emit: float, a: float = 2.0, decode: float = 1.0, b: float = 4.0) -> list[Line]:
    """A chunk that spends a + decode in the first stage and b in the second; the leader's clock is far off."""
    far = 10**15 + 20_000_000 * k
    return [
        {"k": k, "rank": 0, "tA0": 10 * k, "tA1": 10 * k + a, "tSend": 10 * k + a, "unit": "ms"},
        {"k": k, "rank": 0, "tRecv_ms": 10 * k + 7, "tDecode_ms": 10 * k + 7 + decode, "tEmit_us": 1000 * emit},
        {"k": k, "rank": 4, "role": "leader", "tB0_ns": far, "tB1_ns": far + round(b * 1e6)},
    ]


def log(tmp_path: Path, emits: list[float], name: str = "run.jsonl", **stages: float) -> Path:
    return write(tmp_path / name, [line for k, emit in enumerate(emits) for line in chunk(k, emit, **stages)])


def ask(path: Path, **options: Any) -> Result:
    return api.analyse(api.open(path, cache=False), "pipeline", **options)


def test_by_hand(tmp_path):
    result = ask(log(tmp_path, [0, 4, 9, 16.5]))
    rows = result.rows.to_dicts()
    assert [r["k"] for r in rows] == [0, 1, 2, 3]
    assert [r["period_ns"] for r in rows] == [None, 4_000_000, 5_000_000, 7_500_000]
    assert {r["stage0_ns"] for r in rows} == {3_000_000} and {r["stage1_ns"] for r in rows} == {4_000_000}
    # hidden = max(0, 3 + 4 − period), over min(3, 4)
    assert [r["hidden_ns"] for r in rows] == [None, 3_000_000, 2_000_000, 0]
    assert [r["overlap_score"] for r in rows] == [None, 1.0, pytest.approx(2 / 3), 0.0]
    s = result.summary
    assert s["overlap_score"] == pytest.approx(2 / 3) and s["pass"] is True and s["chunks"] == 3
    assert s["p50"]["period_ns"] == 5_000_000
    assert s["p90"]["period_ns"] == 7_000_000  # 5 + 0.8 · 2.5
    assert s["p99"]["period_ns"] == 7_450_000


def test_warm_up_does_not_count(tmp_path):
    assert ask(log(tmp_path, [0, 7, 14, 18, 22, 26]), warmup=3).summary["overlap_score"] == 1.0
    with pytest.raises(CannotAnswer):
        ask(tmp_path / "run.jsonl", warmup=6)
    with pytest.raises(BadInput):
        ask(tmp_path / "run.jsonl", warmup=-1)


@pytest.mark.parametrize(
    ("period", "said"),
    [(4.0, "overlapped"), (4.2, "overlapped"), (7.0, "serialized"), (5.4, "partly overlapped"), (9.0, "stalled")],
)
def test_verdict_is_by_the_period(tmp_path, period, said):
    verdict = ask(log(tmp_path, [period * k for k in range(5)])).summary["verdict"]
    assert verdict.startswith(said)
    assert " 4 ms" in verdict and " 7 ms" in verdict and f" {period:g} ms" in verdict


def test_a_stage_of_no_time_has_no_score(tmp_path):
    path = log(tmp_path, [0, 4, 8], a=0.0, decode=0.0)
    with pytest.raises(CannotAnswer):
        ask(path)


def test_gate(tmp_path, capsys):
    slow = log(tmp_path, [0, 7, 14])
    with pytest.raises(GateFailed) as failed:
        ask(slow, gate=0.30)
    assert failed.value.result.rows.height == 3 and failed.value.result.command == "pipeline"
    assert ask(slow, gate=0.0).summary["pass"] is True
    assert run(["pipeline", str(slow), "--gate", "0.30", "--no-cache", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["summary"]["pass"] is False  # the answer is there all the same
    assert "0.000 is below the gate 0.3" in err
    assert run(["pipeline", str(slow), "--no-cache"]) == 0


def test_queue_depths_side_by_side(tmp_path, capsys):
    shallow = log(tmp_path, [7.0 * k for k in range(30)], "one.jsonl")
    deep = write(tmp_path / "two.jsonl", [{"queue_depth": 2}, *shallow_lines([4.1 * k for k in range(30)])])
    summary = ask(deep, against=str(shallow)).summary
    assert summary["queue_depth"] == 2 and summary["runs"]["against"]["queue_depth"] is None
    assert summary["change"]["period_ns"] == -2_900_000
    assert summary["change"]["period_pct"] == pytest.approx(-100 * 2.9 / 7)
    assert summary["change"]["verdict"] == "the period is shorter than the other"
    same = ask(deep, against=str(deep)).summary["change"]
    assert same["period_ns"] == 0 and "noise" in same["verdict"]
    assert run(["pipeline", str(deep), "--against", str(shallow), "--no-cache"]) == 0
    assert "shorter than the other" in capsys.readouterr().out


def shallow_lines(emits: list[float]) -> list[Line | str]:
    return [line for k, emit in enumerate(emits) for line in chunk(k, emit)]


def test_block_timers(tmp_path):
    timers: list[Line | str] = [
        {"block": "attention", "ms": 3.0, "synchronized": True},
        {"block": "mlp", "us": 1000},
        {"block": "attention", "ms": 1.0, "synchronized": True},
    ]
    result = ask(write(tmp_path / "blocks.jsonl", timers))
    rows = {r["block"]: r for r in result.rows.to_dicts()}
    assert rows["attention"]["total_ns"] == 4_000_000 and rows["attention"]["share_pct"] == 80.0
    assert rows["attention"]["use"] == "attribution only" and rows["mlp"]["use"] == "host time"
    assert sum(r["share_pct"] for r in rows.values()) == pytest.approx(100.0)
    assert any("attribution only" in n for n in result.notes)
    both = ask(write(tmp_path / "both.jsonl", [*shallow_lines([0, 4, 8]), *timers]))
    assert both.rows.columns[0] == "k" and both.summary["blocks"][0]["block"] == "attention"
    with pytest.raises(CannotAnswer):
        ask(log(tmp_path, [0, 4, 8], "none.jsonl"), by="block")


def _timers(path: Path, header: Line, **ms: list[float]) -> Path:
    return write(path, [header, *({"block": block, "ms": each} for block, took in ms.items() for each in took)])


def test_blocks_of_two_logs_are_compared(tmp_path, capsys):
    small = _timers(tmp_path / "small.jsonl", {"resolution": "480p", "config": "bf16"}, dit=[30, 30], vae=[20, 20])
    large = _timers(tmp_path / "large.jsonl", {"resolution": "720p", "config": "bf16"}, dit=[90], vae=[25], text=[5])
    assert run(["pipeline", str(large), "--by", "block", "--against", str(small), "--no-cache"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Under resolution 720p, config bf16: dit 75 %, vae 21 %, text 4 % of 120 ms in timers" in text
    assert "dit changed most: 90 ms per run, not 30 ms, 60 ms longer." in text
    rows = {r["block"]: r for r in ask(large, by="block", against=str(small)).rows.to_dicts()}
    assert rows["dit"]["change_ns"] == 60_000_000 and rows["dit"]["against_share_pct"] == pytest.approx(60)
    assert rows["vae"]["change_ns"] == 5_000_000 and rows["text"]["against_mean_ns"] is None
    gone = {r["block"]: r for r in ask(small, by="block", against=str(large)).rows.to_dicts()}["text"]
    assert gone["n"] == 0 and gone["total_ns"] is None and gone["against_mean_ns"] == 5_000_000
    with pytest.raises(CannotAnswer, match="log of --against"):
        ask(large, by="block", against=str(log(tmp_path, [0, 4, 8], "chunks.jsonl")))


def test_blocks_of_two_resolutions_in_one_log(tmp_path):
    lines: list[Line | str] = [
        {"block": "dit", "ms": 3, "resolution": "480p"},
        {"block": "vae", "ms": 1, "resolution": "480p"},
        {"block": "dit", "ms": 9, "resolution": "720p"},
        {"block": "vae", "ms": 1, "resolution": "720p"},
    ]
    result = ask(write(tmp_path / "two.jsonl", lines), by="block")
    shares = {(r["block"], r["under"]): r["share_pct"] for r in result.rows.to_dicts()}
    assert shares[("dit", "resolution 480p")] == 75 and shares[("dit", "resolution 720p")] == 90
    said = result.summary["statement"]
    assert "nder resolution 480p: dit 75 %, vae 25 %" in said and "nder resolution 720p: dit 90 %, vae 10 %" in said


def test_one_line_per_chunk_needs_no_rank(tmp_path):
    lines: list[Line | str] = [
        {"unit": "s"},
        *(
            {
                "k": k,
                "tA0": 0,
                "tA1": 0.002,
                "tRecv": 0.006,
                "tDecode": 0.007,
                "tEmit": 0.004 * k,
                "tB0": 1,
                "tB1": 1.004,
            }
            for k in range(3)
        ),
    ]
    assert ask(write(tmp_path / "merged.jsonl", lines)).rows["overlap_score"].to_list() == [None, 1.0, 1.0]


def test_a_gap_in_the_log_has_no_period(tmp_path):
    lines = [*chunk(0, 0), *chunk(1, 4), *chunk(3, 12), *chunk(4, 16)]
    result = ask(write(tmp_path / "gap.jsonl", list(lines)))
    assert result.rows["period_ns"].to_list() == [None, 4_000_000, None, 4_000_000]
    assert any("1 chunks have no period" in n for n in result.notes)


def test_a_cut_off_line_is_left_out(tmp_path):
    result = ask(write(tmp_path / "cut.jsonl", [*shallow_lines([0, 4, 8]), '{"k": 3, "tA0"']))
    assert any("cut off" in n for n in result.notes)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"k": 0, "tA0": 1}], "no unit"),
        ([{"k": 0, "tA0": 1, "unit": "min"}], "unit 'min'"),
        ([{"k": 0, "tA0_ms": "soon"}], "not a number"),
        ([{"tA0_ms": 1, "block": "x", "ms": 1}], "without k"),
        ([{"k": 0.5, "tA0_ms": 1}], "not a whole number"),
        ([{"k": 0, "tA0_ms": 1}, {"k": 0, "tA0_ms": 2}], "again"),
        ([{"block": "x"}], "needs one duration"),
        ([{"k": 0, "tA0_ms": 1}, "nonsense", {"k": 1, "tA0_ms": 1}], ":2: not JSON"),
        ([{"k": 0}], "neither times"),
        ([{"queue_depth": 1}, {"queue_depth": 2}], "queue_depth 2 after 1"),
    ],
)
def test_bad_logs_are_refused_in_one_line(tmp_path, lines, said, capsys):
    path = write(tmp_path / "bad.jsonl", lines)
    assert run(["pipeline", str(path), "--no-cache"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_logs_are_told_from_traces(tmp_path):
    assert kind_of(log(tmp_path, [0, 4])) == "pipeline-log"
    assert kind_of(write(tmp_path / "log.txt", [{"k": 0, "tA0_ms": 1}])) == "pipeline-log"
    assert kind_of(write(tmp_path / "trace.json", [{"traceEvents": [], "k": 1}])) == "kineto"
    (tmp_path / "pretty.json").write_text('{\n "schemaVersion": 1,\n "traceEvents": []\n}')
    assert kind_of(tmp_path / "pretty.json") == "kineto"


def of_ranges(ranges: list[Row]) -> Profile:
    """A profile of ranges alone."""
    return make(ranges=[{"tid": 1, "kind": "startend", "closed": True} | r for r in ranges])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"k": 99999999999999999999, "tA0_ms": 1}', "k is 99999999999999999999, not between"),
        ('{"k": -1, "tA0_ms": 1}', "k is -1, not between"),
        ('{"k": 0, "tA0_ms": 1e30}', "tA0_ms is 1E+30 ms: over 146 years"),
        ('{"k": 0, "tA0_ms": 1e5000000}', "over 146 years"),
        ('{"k": 0, "tA0_s": 99999999999}', "over 146 years"),
        ('{"k": 0, "tA0": 1, "unit": ["ms"]}', "unit ['ms'] of tA0"),
        ('{"k": 0, "rank": 99999999, "tA0_ms": 1}', "rank is 99999999, not between"),
        ('{"k": 0, "tA0_ms": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
    ],
)
def test_numbers_that_cannot_be(tmp_path, line, says):
    with pytest.raises(BadInput) as refused:
        ask(write(tmp_path / "run.jsonl", [line]))
    assert says in str(refused.value) and "run.jsonl:1" in str(refused.value)


def test_ranges_of_a_profile_give_the_same(tmp_path):
    """The same chunks as NVTX ranges, numbered or not, with and without an emitting range."""
    ms = 1_000_000
    ranges = []
    for k, emit in enumerate([0, 4, 9, 16.5]):
        at = 100 + 20 * k
        ranges += [
            {"name": "pp:stage0:encode", "start_ns": at * ms, "end_ns": (at + 2) * ms},
            {"name": f"pp:stage1:forward {k}", "start_ns": (at + 3) * ms, "end_ns": (at + 7) * ms, "proc": 1},
            {"name": "pp:stage0:decode", "start_ns": (at + 8) * ms, "end_ns": (at + 9) * ms},
            {"name": f"pp:emit k={k}", "start_ns": int(emit * ms), "end_ns": int(emit * ms), "kind": "mark"},
        ]
    rows = api.analyse(of_ranges(ranges), "pipeline").rows
    assert rows.equals(ask(log(tmp_path, [0, 4, 9, 16.5])).rows)
    quiet = of_ranges([r for r in ranges if "emit" not in r["name"]])
    result = api.analyse(quiet, "pipeline")
    assert result.rows["period_ns"].to_list() == [None, 20 * ms, 20 * ms, 20 * ms]
    assert any("no emit was recorded" in n for n in result.notes)
