"""Real traces: what NCCL, torch, labels or only the order of kernels say, and what other tools found."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from stepscope import api
from stepscope.errors import CannotAnswer


def ask(path: Path | str, command: str = "collectives", **options) -> api.Result:
    return api.analyse(api.open(str(path), cache=False), command, **options)


def table(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines(), delimiter=delimiter))


def counts(rows: pl.DataFrame) -> dict[tuple[str, str], int]:
    return {(op, ranks): n for op, ranks, n in rows.group_by("op", "ranks").len().iter_rows()}


@pytest.mark.slow
def test_payloads_from_sqlite_and_parquet_give_the_same(shared):
    folder = shared / "traces/h200/payloads"
    for command in ("collectives", "stragglers", "mesh", "clocks"):
        a, b = (ask(folder / f, command) for f in ("overlapped.sqlite", "overlapped_pqtdir"))
        same = [c for c in a.rows.columns if c != "file"]
        assert a.rows.height and a.rows.select(same).equals(b.rows.select(same)), command


def test_payloads_match_exactly(shared):
    rows = ask(shared / "traces/h200/payloads/overlapped.sqlite").rows
    assert rows["known_by"].unique().to_list() == ["payload"]
    transfers = {("send_recv", f"{a}>{b}"): 12 for a, b in ((0, 2), (2, 0), (1, 3), (3, 1))}
    assert counts(rows) == {("all_to_all", "0-1"): 96, ("all_to_all", "2-3"): 96, ("all_reduce", "0-3"): 5} | transfers
    assert (rows["present"] == pl.Series([4 if r == "0-3" else 2 for r in rows["ranks"]])).all()
    sizes = dict(rows.group_by("op").agg(pl.col("bytes").max()).iter_rows())
    assert sizes == {"all_to_all": 2 * 1_048_576, "all_reduce": 67_108_864, "send_recv": 67_108_864}


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["moe4", "moe4mps"])
def test_labels_and_metadata_agree(shared, trace):
    """Two runs of one program: nsys without payloads, matched by labels, and torch.profiler."""
    folder = shared / "traces/h200" / trace
    by_label, by_group = ask(folder / "overlapped.sqlite"), ask(folder / "overlapped.rank*.gz")
    wanted = ("all_to_all", "send_recv")
    a, b = ({k: n for k, n in counts(r.rows).items() if k[0] in wanted} for r in (by_label, by_group))
    assert a == b and len(a) == 6
    meshes = [
        ask(folder / f, "mesh").rows.filter(pl.col("axis") != "world") for f in ("overlapped.sqlite", "*.rank*.gz")
    ]
    assert meshes[0].select("axis", "ranks").equals(meshes[1].select("axis", "ranks"))
    assert dict(by_label.summary["known_by"])["labels"] == sum(a.values())


@pytest.mark.parametrize("trace", ["overlapped", "serialized"])
def test_labels_find_the_communicators_that_nccl_knew(shared, trace):
    """The payloads of the same capture, decoded from its report, say which processes share a communicator."""
    profile = api.open(shared / f"traces/h200/moe4/{trace}.sqlite", cache=False)
    rank_of = dict(profile.ranks.select("pid", "rank").iter_rows())
    members: dict[str, set[int]] = {}
    for row in table(shared / f"golden/nccl-payloads/moe4_{trace}_nccl_payloads.tsv", "\t"):
        members.setdefault(row["communicator"], set()).add(rank_of[(int(row["globalTid"]) >> 24) & 0xFFFFFF])
    found = api.analyse(profile, "mesh").rows.filter(pl.col("axis").is_in(["ep", "world"]))["ranks"]
    assert {frozenset(api.parse_ranks(r)) for r in found} == {frozenset(m) for m in members.values()}


def test_dlrm8_as_tracelens_has_it(shared):
    """By order alone, on one host's clock: starts and ends of the same kernels."""
    result = ask(shared / "traces/public/dlrm8/dlrm_kineto")
    golden = table(shared / "golden/tracelens/dlrm8/nccl_implicit_sync.csv")
    rows = result.rows.sort("seq").to_dicts()
    assert len(rows) == len(golden) == 8
    for row, want in zip(rows, sorted(golden, key=lambda g: int(g["collective_id"])), strict=True):
        assert row["max_wait_ns"] == 1000 * float(want["skew in start time"])
        assert row["skew_ns"] == 1000 * float(want["skew in end time"])
        assert row["first_rank"] == int(want["earliest arrival rank"])
        waits = [float(want[f"rank_{r}_wait_time"]) for r in range(8)]
        assert row["last_rank"] == waits.index(0) and row["wait_ns"] == 1000 * sum(waits)
        # Theirs is the shortest duration, which the last to arrive need not have.
        assert row["transfer_ns"] <= 1000 * float(want["comm_latency"])
    assert "they share one clock" in " ".join(result.notes)


def test_four_ranks_merged_into_one_file(shared):
    rows = ask(shared / "traces/public/mi300x_4ranks_merged_nccl.json.gz").rows
    golden = shared / "golden/tracelens/mi300x_4ranks_merged_nccl/split_by_args_rank.nccl_implicit_sync.csv"
    want = [g for g in table(golden) if g["Collective name"] == "allreduce"]
    mine = rows.filter(pl.col("op") == "all_reduce").sort("seq").to_dicts()
    assert len(mine) == len(want) == 15
    starts = sorted(round(1000 * float(g["skew in start time"])) for g in want)
    assert sorted(r["max_wait_ns"] for r in mine) == pytest.approx(starts, abs=100)
    assert {r["last_rank"] for r in mine} == {3}


def test_one_of_two_ranks_says_so(shared):
    result = ask(shared / "traces/public/a100_nccl_metadata_world2.json.gz")
    assert result.rows["present"].unique().to_list() == [1] and result.rows["bytes"].null_count() == 0
    for column in ("transfer_ns", "max_wait_ns", "last_rank", "busbw_gbps"):
        assert result.rows[column].null_count() == result.rows.height == 21
    assert any("1 of the job's 2 ranks" in n for n in result.notes)
    assert result.summary["wait_ns"] is None and result.summary["transfer_ns"] is None
    grouped = ask(shared / "traces/public/a100_nccl_metadata_world2.json.gz", by="op").rows
    assert grouped["transfer_ns"].null_count() == grouped["wait_ns"].null_count() == grouped.height == 2


@pytest.mark.parametrize("which", ["before", "after"])
def test_two_processes_without_payloads_by_order(shared, which):
    rows = ask(shared / f"traces/public/h100x2_{which}.sqlite").rows
    assert rows["known_by"].unique().to_list() == ["order"] and rows["ranks"].unique().to_list() == ["0-1"]
    assert rows.height == {"before": 33, "after": 31}[which] and rows["bytes"].null_count() == rows.height
    assert (rows["transfer_ns"] > 0).all()


def test_two_of_128_ranks_without_metadata_is_no_answer(shared):
    with pytest.raises(CannotAnswer, match="2 of 128 ranks"):
        ask(shared / "traces/public/world128.rank*.json.gz")


def test_a_capture_that_ended_early_answers_for_what_is_there(shared):
    result = ask(shared / "traces/h200/moe4mps/cut_off.sqlite")
    assert result.rows.height and set(result.rows["ranks"]) == {"0-1", "1>3", "3>1"}
    assert any("differ in number, name or direction between its ranks: not matched" in n for n in result.notes)


@pytest.mark.parametrize("command", ["collectives", "stragglers", "clocks", "critical-path", "pipeline", "mesh"])
def test_the_rank_whose_capture_ended_early_is_named(shared, command):
    """Rank 2 has three of eight chunks. That its peer computed more than it makes that peer no straggler."""
    result = ask(shared / "traces/h200/moe4mps/cut_off.sqlite", command)
    assert any(n.startswith("rank 2: no GPU work in its last 5 of 8 steps or chunks") for n in result.notes)
    if command == "stragglers":
        assert result.rows["cause"].null_count() == 4
        assert any("rank 2 recorded less than ranks that do the same" in n for n in result.notes)


@pytest.mark.slow
def test_ranks_that_share_a_gpu_are_named(shared):
    for trace in ("moe4", "moe4mps", "payloads"):
        assert any(
            n.startswith("ranks 0-3 share one GPU")
            for n in ask(shared / f"traces/h200/{trace}/overlapped.sqlite").notes
        )
    assert not any("share one GPU" in n for n in ask(shared / "traces/public/h100x2_before.sqlite").notes)


def test_streams_have_the_purpose_that_groups_tell(shared):
    rows = ask(shared / "traces/h200/moe4/overlapped.rank*.gz", "streams").rows.filter(pl.col("kind") == "comm")
    assert set(rows["purpose"]) == {"pp_p2p", "ep_a2a"}


def test_by_size_beside_a_peak(shared):
    rows = ask(shared / "traces/h200/payloads/overlapped.sqlite", by="size", peak_gbps=450.0).rows
    assert rows.columns[:2] == ["op", "size_bytes"] and rows["n"].sum() == 245
    assert (rows["busbw_p5_gbps"] <= rows["busbw_p95_gbps"]).all() and (rows["peak_pct"] < 100).all()
