"""`capture verify`: a real capture gone wrong, its healthy siblings, and simulated ones with one thing missing."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from fake import call, make, op
from stepscope.capture import manifest
from stepscope.cli.main import run
from stepscope.derive.rank.data import ranks_of
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.verify import whole
from stepscope.verify.content import slowdown


def verified(capsys, *arguments: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit status, checks by name, and what was said on stderr."""
    status = run(["capture", "verify", *arguments, "--format", "json"])
    said = capsys.readouterr()
    return status, {row["check"]: row for row in json.loads(said.out)["rows"]}, said.err


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> Path:
    """Two nodes, four ranks, one step."""
    folder = tmp_path_factory.mktemp("sim")
    simulate_to(Scenario(pp=2, ep=2, nodes=2, layers=4, micro_batches=10, steps=1), folder, ("nsys",))
    return folder


def test_the_capture_that_one_rank_s_stop_ended(shared, capsys):
    file = shared / "traces" / "h200" / "moe4mps" / "cut_off.sqlite"
    status, checks, said = verified(capsys, str(file))
    assert status == 1
    assert [c for c, row in checks.items() if row["status"] == "failed"] == ["not cut off"]
    assert checks["not cut off"]["ranks"] == "2"
    assert "rank 2: the last 5 of 8 chunks or steps have ranges but no GPU work" in said
    assert "one rank's stop ended the capture for all" in said and "common stop" in said


@pytest.mark.parametrize("name", ["overlapped", "serialized"])
def test_its_healthy_siblings(shared, capsys, name):
    status, checks, _ = verified(capsys, str(shared / "traces" / "h200" / "moe4mps" / f"{name}.sqlite"))
    assert status == 0
    assert not [c for c, row in checks.items() if row["status"] == "failed"]


def test_warm_up_in_the_capture(shared, capsys):
    status, checks, _ = verified(capsys, str(shared / "traces" / "h200" / "payloads" / "overlapped.sqlite"))
    assert status == 1 and "68% of the GPU work comes before" in checks["nothing before the steps"]["found"]


def test_a_simulated_capture_is_good(healthy, capsys):
    status, checks, _ = verified(capsys, str(healthy))
    assert status == 0, checks


def test_a_missing_rank(healthy, capsys):
    status, checks, _ = verified(capsys, str(healthy / "node1.sqlite"))
    assert status == 1 and checks["ranks"]["ranks"] == "0-1"
    status, checks, _ = verified(capsys, str(healthy), "--ranks", "8")
    assert status == 1 and checks["ranks"]["ranks"] == "4-7"


def test_too_large(healthy, capsys):
    status, checks, _ = verified(capsys, str(healthy), "--max-size", "1kB")
    assert status == 1 and checks["size"]["status"] == "failed"


def test_no_setup_label_no_kernels_lost_ops(healthy, tmp_path, capsys):
    copy = tmp_path / "node0.sqlite"
    copy.write_bytes((healthy / "node0.sqlite").read_bytes())
    with sqlite3.connect(copy) as db:
        (half,) = db.execute("SELECT (min(start) + max(start)) / 2 FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > ?", (half,))
        db.execute("DELETE FROM NVTX_EVENTS WHERE text LIKE 'rank=%'")
    status, checks, said = verified(capsys, str(copy))
    assert status == 1
    assert checks["setup label"]["status"] == checks["nothing dropped"]["status"] == "failed"
    assert "launches have no op" in checks["nothing dropped"]["found"]
    assert "(and " in said


def test_too_few_micro_batches(tmp_path, capsys):
    simulate_to(Scenario(pp=4, ep=1, layers=8, micro_batches=8, steps=1), tmp_path, ("nsys",))
    status, checks, _ = verified(capsys, str(tmp_path))
    assert status == 1 and checks["steady state"]["status"] == "failed"
    assert "0" in checks["steady state"]["ranks"].split(",")[0]


def test_what_the_manifest_says(healthy, tmp_path, capsys):
    for file in healthy.glob("*.sqlite"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    times = {"0": [(100, False)] * 3 + [(150, True)]}
    scenario = {"ranks": 5, "steps": 2, "machine": {"gpus": [{"name": "H200"}]}}
    manifest.write(tmp_path, {"scenario": scenario, "captured": {"step_ns": times}})
    status, checks, _ = verified(capsys, str(tmp_path))
    assert status == 1 and checks["ranks"]["ranks"] == "4"
    assert checks["slowdown"]["status"] == "warning" and checks["slowdown"]["found"] == "1.50 times"
    status, checks, _ = verified(capsys, str(tmp_path), "--ranks", "4", "--against", str(tmp_path))
    assert checks["slowdown"]["found"] == "1.50 times"
    assert run(["capture", "verify", str(tmp_path), "--against", str(healthy)]) == 2
    capsys.readouterr()
    manifest.write(tmp_path, {"scenario": {**scenario, "traced": [0, 1, 7]}, "captured": {"step_ns": times}})
    assert verified(capsys, str(tmp_path))[1]["ranks"]["ranks"] == "7"


def test_records_that_cannot_be(healthy, capsys, tmp_path):
    file = tmp_path / "node0.sqlite"
    file.write_bytes((healthy / "node0.sqlite").read_bytes())
    with sqlite3.connect(file) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = end, end = start WHERE rowid % 100 = 0")
    status, checks, said = verified(capsys, str(file))
    assert status == 1 and checks["records"]["status"] == "failed"
    assert "rows whose end is before the start" in checks["records"]["found"] and "records: ops: left out" in said


def test_launches_that_a_graph_keeps_are_not_lost(shared, capsys):
    """Made by hand: ten launches with an op, five within a capture of a graph, by another thread too; one is lost."""

    def status(*calls: dict[str, object]) -> tuple[str, str]:
        ops = [op(100 + k, 101 + k, call=k) for k in range(1, 11)]
        launches = [call(k, k + 1, k) for k in range(1, 11)]
        check = whole.launches(list(ranks_of(make(ops=ops, calls=[*launches, *calls]))))
        return check.status, check.found

    begin, end = call(20, 21, 91, "cudaStreamBeginCapture"), call(40, 41, 92, "cudaStreamEndCapture")
    kept = [call(22 + k, 23 + k, 50 + k, tid=1 + k % 2) for k in range(5)]
    assert status(begin, *kept, end) == ("ok", "all 10 launches have their op")
    assert status(begin, *kept, end, call(60, 61, 70)) == ("failed", "1 of 11 launches have no op")
    assert status(*kept) == ("failed", "5 of 15 launches have no op")
    _, checks, _ = verified(capsys, str(shared / "traces/public/tl_xdit_flux_capture.json.gz"))
    assert checks["nothing dropped"]["status"] == "ok"


@pytest.mark.slow
def test_one_process_needs_no_label(shared, capsys):
    """Captures that stepscope did not make, of trainers with markers of their own."""
    for name in ("hf/hf1_healthy.sqlite", "hf/hf1_healthy.rank0.pt.trace.json.gz", "train/eager.sqlite"):
        status, checks, said = verified(capsys, str(shared / "traces" / "h200" / name))
        assert status == 0, (name, said)
        assert checks["setup label"]["found"] == "one process: none needed"
        assert checks["steps"]["status"] == "ok"


@pytest.mark.slow
def test_ranks_that_others_state_are_a_warning(shared, capsys):
    files = sorted(str(f) for f in (shared / "traces" / "h200" / "hf").glob("hf4_healthy.rank*.gz"))
    status, checks, said = verified(capsys, *files)
    assert status == 0, said
    assert checks["setup label"]["status"] == "warning" and "the mesh is inferred" in checks["setup label"]["found"]
    assert checks["payloads"]["status"] == "ok"


@pytest.mark.slow
def test_what_was_asked_for_arrived(shared, tmp_path, capsys):
    rich = shared / "traces" / "h200" / "hf" / "hf1_rich.sqlite"
    (tmp_path / "node0.sqlite").symlink_to(rich)

    def asked(*wants: str) -> dict[str, str]:
        scenario = {"ranks": 1, "steps": 3, "machine": {"gpus": [{"name": "H200"}]}, "with": list(wants)}
        manifest.write(tmp_path, {"scenario": scenario, "captured": {"step_ns": {}}})
        return verified(capsys, str(tmp_path), "--max-size", "1GB")[1]["asked for"]

    assert asked()["status"] == "skipped"
    assert asked("memory", "gpu-metrics", "cpu", "osrt", "pytorch", "shapes", "python-sampling")["status"] == "ok"
    lacking = asked("memory", "network")
    assert lacking["status"] == "failed" and lacking["found"] == "memory" and "network did not arrive" in lacking["fix"]
    (tmp_path / "node0.sqlite").unlink()
    (tmp_path / "node0.sqlite").symlink_to(rich.with_name("hf1_healthy.sqlite"))
    assert "python-sampling did not arrive" in asked("python-sampling")["fix"]


def test_ranks_in_another_environment(healthy, tmp_path, capsys):
    for file in healthy.glob("*.sqlite"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    said = {str(r): {"torch": "2.11.0", "host": f"n{r // 2}", "variables": {"NCCL_ALGO": "Ring"}} for r in range(4)}
    scenario = {"ranks": 4, "steps": 1, "machine": {"gpus": [{"name": "H200"}]}}

    def environment() -> dict[str, str]:
        manifest.write(tmp_path, {"scenario": scenario, "captured": {"step_ns": {}, "environments": said}})
        return verified(capsys, str(tmp_path))[1]["one environment"]

    assert environment()["status"] == "ok"
    said["2"] = {**said["2"], "variables": {"NCCL_ALGO": "Tree"}}
    differ = environment()
    assert (differ["status"], differ["ranks"]) == ("warning", "2")
    assert differ["found"] == "variables.NCCL_ALGO is Tree on ranks 2, Ring elsewhere"


@pytest.mark.parametrize(
    ("unprofiled", "status"), [([100, 100, 100], "ok"), ([60, 98, 300], "warning"), ([95, 100, 104], "ok")]
)
def test_one_step_each_does_not_prove_that_the_profiler_costs_nothing(unprofiled, status):
    """Unprofiled steps that spread by five say nothing about a ratio of 0.98."""
    check = slowdown(98.0, float(sorted(unprofiled)[1]), [98.0], [float(n) for n in unprofiled])
    assert check.status == status
    if status == "warning":
        assert "is as likely" in check.found and "unprofiled steps take 60 ns to 300 ns" in check.found
