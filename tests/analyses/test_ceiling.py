"""`collectives --ceiling`: bus bandwidth beside what nccl-tests reached. Its format, our figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from faultcases import scenario
from jobs import written
from stepscope import api
from stepscope.analyses.collectives.ceiling import read_ceiling
from stepscope.errors import BadInput, CannotAnswer

NEW = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 1048576 step: 1024(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on       host device  0 [0000:07:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    10.00    0.10    0.20      0    10.00    0.10    0.15      0
     1048576        262144     float     sum      -1    20.00   52.43  100.00      0    20.00   52.43   90.00    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 47.6
"""
#: An older version has no column for the operator of a gather, and says nowhere which program it is.
OLD = """#                                             out-of-place                    in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072   float    30.00   34.95   30.00  0e+00    30.00   34.95   31.00  0e+00
"""


def test_rows_of_both_formats_are_read(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("srun: job 12 started\n" + NEW + "done\n")
    (tmp_path / "all_gather_perf.txt").write_text(OLD)
    ceiling = read_ceiling(tmp_path)
    assert {kind: (sizes.tolist(), rates.tolist()) for kind, (sizes, rates) in ceiling.of.items()} == {
        "all_reduce": ([1024, 1048576], [0.2, 100.0]),
        "all_gather": ([1048576], [31.0]),
    }
    # Between 2^10 and 2^20 the middle is 2^15; outside, the nearest.
    reached = ceiling.at("all_reduce", np.array([1.0, 2.0**15, 2.0**30]))
    assert reached is not None and reached.tolist() == pytest.approx([0.2, 50.1, 100.0])
    assert ceiling.at("all_to_all", np.array([1.0])) is None


@pytest.mark.parametrize(
    ("name", "text", "says"),
    (
        ("notes.txt", "nothing here\n", "no row of nccl-tests"),
        ("results.txt", OLD, "does not say which operation"),
        ("all_reduce_perf.txt", NEW.replace("100.00", "nan").replace("90.00", "x"), None),
    ),
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, name: str, text: str, says: str | None) -> None:
    (tmp_path / name).write_text(text)
    if says is None:
        assert read_ceiling(tmp_path / name).of["all_reduce"][0].tolist() == [1024]  # a row that is none is left out
        return
    with pytest.raises(BadInput, match=says):
        read_ceiling(tmp_path / name)


@pytest.fixture(scope="module")
def job() -> Iterator[Path]:
    with written(scenario("ddp", None, dp=4, ep=1, steps=1)) as (_, folder):
        yield folder


def test_collectives_stand_beside_their_ceiling(job: Path, tmp_path: Path) -> None:
    """A wire that does half of what nccl-tests reached is said to."""
    plain = api.analyse(api.open(job, cache=False), "collectives").rows
    large = plain.filter(plain["bytes"] > 1 << 20)
    rate = float(large["busbw_gbps"].median())  # type: ignore[arg-type]
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(NEW.replace("100.00", f"{2 * rate:.3f}").replace("90.00", "1.00"))
    result = api.analyse(api.open(job, cache=False), "collectives", ceiling=file)
    shares = result.rows.filter(result.rows["bytes"] > 1 << 20)["ceiling_pct"]
    assert shares.median() == pytest.approx(50, rel=0.01)
    assert "All-reduces reach 5" in result.summary["statement"] or "All-reduces reach 4" in result.summary["statement"]
    by = api.analyse(api.open(job, cache=False), "collectives", by="size", ceiling=file).rows
    assert by["ceiling_pct"].null_count() == 0
    assert plain["ceiling_pct"].null_count() == plain.height


def test_a_sweep_beside_the_capture_is_named(job: Path, tmp_path: Path) -> None:
    """What `capture nccl` left in the folder of a capture is found there, and the sentence says what it was."""
    folder = tmp_path / "nccl"
    folder.mkdir()
    head = "# stepscope capture nccl: gloo on CPUs: not what NCCL reaches between GPUs, 2 ranks on 1 node, torch 2\n"
    row = "# size count type time algbw busbw\n  1048576  262144  float  1000.00  1.049  1.049\n"
    (folder / "all_reduce_perf.txt").write_text(head + "# all_reduce_perf\n" + row)
    (tmp_path / "rank0.sqlite").write_bytes(b"\0" * 100)
    result = api.analyse(api.open(job, cache=False), "collectives", ceiling=tmp_path)
    assert "% of what capture nccl (gloo on CPUs) did" in result.summary["statement"]
    assert set(result.rows.filter(result.rows["op"] == "all_reduce")["ceiling_gbps"]) == {1.049}


def test_links_are_the_ceiling_where_nobody_measured() -> None:
    """Four ranks of one node on H200s of their own: 450 GB/s in one direction."""
    with written(scenario("ddp", None, dp=4, ep=1, steps=1, nodes=1)) as (_, folder):
        result = api.analyse(api.open(folder, cache=False), "collectives", ceiling=Path("links"))
    assert set(result.rows["ceiling_gbps"]) == {450.0}
    share = (100 * result.rows["busbw_gbps"] / 450).to_list()
    assert result.rows["ceiling_pct"].to_list() == pytest.approx(share)
    assert "of what the links of H200 (NVLink 4, 450 GB/s) carry" in result.summary["statement"]


def test_links_between_nodes_are_not_known() -> None:
    with (
        written(scenario("ddp", None, dp=4, ep=1, steps=1, nodes=2)) as (_, folder),
        pytest.raises(CannotAnswer, match="capture nccl"),
    ):
        api.analyse(api.open(folder, cache=False), "collectives", ceiling=Path("links"))
