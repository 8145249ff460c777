"""Which process is which rank: labels first, then file names, then the order of files and pids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope import api
from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.heading import source_line
from stepscope.model.ranks import INFERRED, RANKS, RANKS_DOC, assign, ranks_text, sharing, some_ranks, world_summary
from stepscope.model.result import Result
from stepscope.model.schema import PROCESSES
from stepscope.model.source import Chunk, Quality, SourceInfo


class Processes:
    """A source that knows its processes and nothing else."""

    def __init__(self, file: str, *rows: dict[str, Any]) -> None:
        self.path = Path(file)
        self.info = SourceInfo(file, "fake")
        self.quality = Quality()
        self._rows = [{"proc": n, **row} for n, row in enumerate(rows)]

    def processes(self) -> pl.DataFrame:
        return pl.DataFrame(self._rows, schema=dict(PROCESSES))

    def tables(self) -> frozenset[str]:
        return frozenset()

    def check(self) -> None:
        pass

    def read(self, table: str, part: Part = "core") -> Chunk:
        raise NotImplementedError


def known(rank: int, pid: int = 1, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "rank": rank, "rank_from": "setup label", **more}


def test_labels_decide_and_rows_are_sorted() -> None:
    ranks, notes = assign([Processes("b.sqlite", known(3, 10), known(1, 20)), Processes("a.sqlite", known(0, 10))])
    assert ranks["rank"].to_list() == [0, 1, 3]
    assert ranks["pid"].to_list() == [10, 20, 10]
    assert ranks["source"].to_list() == [1, 0, 0]
    assert ranks["proc"].to_list() == [0, 1, 0]
    assert notes == []


@pytest.mark.parametrize(
    ("file", "rank"),
    [
        ("a100_saxpy_mpi.rank1.sqlite", 1),
        ("rank12.sqlite", 12),
        ("run_rank-3.sqlite", 3),
        ("trace_rank_7.json.gz", 7),
        ("worker5.pt.trace.json", 5),
        ("rank0_of_rank8_rank2.sqlite", 2),
    ],
)
def test_the_number_in_the_file_name(file: str, rank: int) -> None:
    ranks, notes = assign([Processes(f"/x/{file}", {"pid": 9})])
    assert ranks["rank"].to_list() == [rank]
    assert ranks["rank_from"].to_list() == ["file name"]
    assert notes == []


@pytest.mark.parametrize("file", ["frank1.sqlite", "node3.sqlite", "crank7.json", "rank.sqlite", "rankings2.sqlite"])
def test_names_without_a_rank(file: str) -> None:
    ranks, notes = assign([Processes(file, {"pid": 9})])
    assert ranks["rank_from"].to_list() == [INFERRED]
    assert len(notes) == 1


def test_a_folder_named_like_a_rank_says_nothing_of_its_files() -> None:
    ranks, _ = assign([Processes("rank5/trace.sqlite", {"pid": 9})])
    assert ranks["rank"].to_list() == [0]


def test_a_label_outranks_the_file_name() -> None:
    ranks, _ = assign([Processes("rank4.sqlite", known(2))])
    assert ranks["rank"].to_list() == [2]
    assert ranks["rank_from"].to_list() == ["setup label"]


def test_a_file_of_several_processes_has_no_rank_in_its_name() -> None:
    ranks, notes = assign([Processes("rank4.sqlite", {"pid": 30}, {"pid": 20})])
    assert ranks.select("rank", "pid").rows() == [(0, 20), (1, 30)]
    assert notes == [f"rank inferred from the {INFERRED} for 2 of 2 processes"]


def test_unknown_ones_take_the_free_numbers() -> None:
    ranks, notes = assign(
        [Processes("x.sqlite", {"pid": 5}, known(1, 6), {"pid": 4}), Processes("y.sqlite", {"pid": 1})]
    )
    assert ranks.select("rank", "pid", "rank_from").rows() == [
        (0, 4, INFERRED),
        (1, 6, "setup label"),
        (2, 5, INFERRED),
        (3, 1, INFERRED),
    ]
    assert "3 of 4" in notes[0]


def test_colliding_pids_of_two_hosts_stay_apart() -> None:
    ranks, _ = assign(
        [Processes("n0.sqlite", {"pid": 7, "host": "n0"}), Processes("n1.sqlite", {"pid": 7, "host": "n1"})]
    )
    assert ranks.select("rank", "host", "pid").rows() == [(0, "n0", 7), (1, "n1", 7)]


def test_the_host_is_the_file_where_nothing_tells() -> None:
    ranks, _ = assign([Processes("/data/node3.pt.trace.json.gz", {"pid": 7})])
    assert ranks["host"].to_list() == ["node3"]


def test_the_same_rank_in_two_files_names_both() -> None:
    with pytest.raises(BadInput) as caught:
        assign([Processes("/a/x.sqlite", known(0), known(2, 5)), Processes("/b/y.sqlite", known(2, 9))])
    assert "/a/x.sqlite and /b/y.sqlite both hold rank 2" in str(caught.value)
    assert str(caught.value).endswith("to compare two runs: stepscope compare /a/x.sqlite --to /b/y.sqlite")


def test_two_runs_in_folders_are_to_be_compared() -> None:
    runs = [Processes(f"/{run}/node{n}.sqlite", known(n)) for run in ("my base", "new") for n in range(2)]
    with pytest.raises(BadInput, match=r"stepscope compare '/my base' --to /new$"):
        assign(runs)


def test_two_files_without_ranks_may_be_two_runs() -> None:
    _, notes = assign([Processes("/t/old.json", {"pid": 7}), Processes("/t/new.json", {"pid": 8})])
    assert "if they are two runs: stepscope compare /t/old.json --to /t/new.json" in notes[0]
    _, notes = assign([Processes("/t/both.sqlite", {"pid": 7}, {"pid": 8})])
    assert "two runs" not in notes[0]


def test_the_same_rank_twice_in_one_file_names_the_pids() -> None:
    with pytest.raises(BadInput, match="pids 5 and 9 both say they are rank 2"):
        assign([Processes("x.sqlite", known(2, 5), known(2, 9))])


def test_two_files_named_after_one_rank() -> None:
    with pytest.raises(BadInput, match="both hold rank 3"):
        assign([Processes("a.rank3.sqlite", {"pid": 1}), Processes("b.rank3.sqlite", {"pid": 2})])


def test_a_source_of_no_processes() -> None:
    ranks, notes = assign([Processes("x.sqlite")])
    assert ranks.height == 0
    assert notes == []


def test_ranks_on_one_gpu_are_said() -> None:
    """Two on a device of one host; the same number on another host is another device, and null tells nothing."""
    one = Processes("a.sqlite", known(0, 1, host="x", gpu_id=0), known(1, 2, host="x", gpu_id=0))
    two = Processes("b.sqlite", known(2, 1, host="y", gpu_id=0), known(3, 2, host="y"), known(4, 3, host="y"))
    assert assign([one, two])[1] == [
        "ranks 0-1 share one GPU: durations of their ops include time in which the others ran"
    ]
    assert assign([two])[1] == []
    four = Processes("a.sqlite", *(known(r, r + 1, host="x", gpu_id=r // 2) for r in range(4)))
    assert "ranks 0-1 and ranks 2-3 share one GPU each:" in assign([four])[1][0]


@pytest.mark.parametrize(
    ("ranks", "text"), [([], ""), ([3], "3"), ([2, 0, 1, 5], "0-2,5"), ([1, 1, 2], "1-2"), (range(512), "0-511")]
)
def test_ranks_are_written_as_the_command_line_takes_them(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text
    assert some_ranks(ranks) == f"rank{'s' * (len(set(ranks)) != 1)} {text}"


def test_every_column_is_documented() -> None:
    assert list(RANKS) == list(RANKS_DOC)


sources = st.lists(
    st.lists(st.none() | st.integers(0, 9), max_size=4),
    min_size=1,
    max_size=4,
)


@given(sources)
def test_every_process_gets_one_rank_and_keeps_its_own(files: list[list[int | None]]) -> None:
    given_ranks = [r for file in files for r in file if r is not None]
    made = [
        Processes(f"f{n}.sqlite", *({"pid": 100 - p} if r is None else known(r, 100 - p) for p, r in enumerate(file)))
        for n, file in enumerate(files)
    ]
    if len(set(given_ranks)) < len(given_ranks):
        with pytest.raises(BadInput):
            assign(made)
        return
    ranks, notes = assign(made)
    assert ranks.height == sum(map(len, files))
    assert ranks["rank"].is_unique().all()
    assert ranks["rank"].is_sorted()
    assert dict(ranks.schema) == {k: v() if isinstance(v, type) else v for k, v in RANKS.items()}
    for row in ranks.iter_rows(named=True):
        own = files[row["source"]][row["proc"]]
        assert own is None or own == row["rank"]
        assert (own is None) == (row["rank_from"] == INFERRED)
    assert bool(notes) == any(r is None for file in files for r in file)


def _said(rank: int, world: int | None, rank_from: str = "distributedInfo") -> dict[str, Any]:
    return known(rank, rank_from=rank_from, world_size=world)


def test_files_of_different_worlds_are_not_one_job() -> None:
    with pytest.raises(BadInput) as refused:
        assign([Processes("a.json", _said(3, 8)), Processes("b.json", _said(1, 2))])
    assert str(refused.value) == (
        "a.json is of a job of 8 ranks, b.json of one of 2; "
        "give the files of one job; to compare two: stepscope compare a.json --to b.json"
    )
    one_job = [Processes("a.json", _said(0, 8)), Processes("b.json", _said(1, 8)), Processes("c.json", _said(2, None))]
    assert assign(one_job)[0]["rank"].to_list() == [0, 1, 2]


def test_the_widest_communicator_beside_a_label_is_no_world() -> None:
    files = [Processes("a.sqlite", _said(0, 8, "setup label")), Processes("b.sqlite", _said(1, 4, "setup label"))]
    with pytest.raises(BadInput, match="of a job of 8 ranks"):
        assign(files)
    for file in files:
        file.info = SourceInfo(str(file.path), "nsys-sqlite")
    assert assign(files)[0]["rank"].to_list() == [0, 1]


def test_missing_ranks_are_told_where_the_world_is_known() -> None:
    ranks, _ = assign([Processes("a.json", _said(0, 6)), Processes("b.json", _said(4, 6))])
    assert world_summary(ranks) == {"world": 6, "ranks_missing": "1-3,5"}
    ranks, _ = assign([Processes("a.json", _said(n, 2)) for n in (0,)] + [Processes("b.json", _said(1, 2))])
    assert world_summary(ranks) == {"world": 2}
    ranks, _ = assign([Processes("a.json", _said(3, None))])
    assert world_summary(ranks) == {}


@pytest.mark.parametrize(
    ("ranks", "world", "line"),
    [(2, 128, "2 of 128 ranks"), (1, 2, "1 of 2 ranks"), (1, None, "1 rank"), (2, 2, "2 ranks")],
)
def test_the_heading_says_how_many_of_the_ranks_are_there(ranks: int, world: int | None, line: str) -> None:
    assert source_line(Result(pl.DataFrame(), ranks=ranks, world=world)) == line


@pytest.mark.slow
def test_real_files_of_two_jobs_are_refused(shared: Path) -> None:
    files = [shared / f"traces/public/hta_diff_{which}.json.gz" for which in ("control", "test")]
    with pytest.raises(BadInput, match=r"of 2 runs, .*control\.json\.gz .*test\.json\.gz"):
        api.open(*files, cache=False)
    two = api.open(shared / "traces/public/world128.rank*.json.gz", cache=False).info()
    assert (two.world, two.summary["ranks_missing"]) == (128, "2-127")


@pytest.mark.parametrize(
    ("file", "host"),
    [
        ("rank3.gpu-node-7.pt.trace.json.gz", "gpu-node-7"),  # capture run
        ("gpu-node-7_4711.1790857026123.pt.trace.json", "gpu-node-7"),  # torch.profiler.tensorboard_trace_handler
        ("rank3.pt.trace.json.gz", "rank3"),
        ("job.rank3.pt.trace.json.gz", "job"),
        ("rank3.sqlite", "rank3"),
    ],
)
def test_the_host_in_the_file_name(file: str, host: str) -> None:
    ranks, _ = assign([Processes(f"/x/{file}", {"pid": 9, "host": None})])
    assert ranks["host"].to_list() == [host]


def test_ranks_that_share_a_gpu() -> None:
    places = [("a", 0), ("a", 0), ("b", 0), ("a", 1), ("b", None), ("b", None)]
    rows = [{"pid": 9, "rank": r, "host": host, "gpu_id": gpu} for r, (host, gpu) in enumerate(places)]
    ranks, notes = assign([Processes(f"/x/{r}.sqlite", row) for r, row in enumerate(rows)])
    assert sharing(ranks) == [[0, 1]]
    assert [n.code for n in notes] == ["shared-gpu"]


def test_how_kernels_were_launched_is_some_of_the_detail(shared: Path) -> None:
    path = shared / "traces/h200/payloads/overlapped.sqlite"
    first, second = api.open(path, cache=False), api.open(path, cache=False)
    detail = dict(first.by_rank("ops", detail=True))
    for profile in (first, second):  # where the detail was read, and where it was not
        for rank, frame in profile.launch_shapes():
            assert frame["grid_x"].null_count() < frame.height
            same = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "smem_dynamic"]
            assert frame.select(same).equals(detail[rank].select(same))
