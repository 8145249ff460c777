"""What streams are for: by hand, against brute force, and on DeepSeek's own trace of DualPipe."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import make, op
from stepscope import api
from stepscope.analyses.overlap import overlap
from stepscope.analyses.streams import streams
from stepscope.derive.comm.kinds import kinds
from stepscope.derive.windows.spec import WindowSpec

DISPATCH = "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*, long*)"
LAYOUT = "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)"
CAST = "void cuda::per_token_cast_to_fp8<128>(int)"
Row = dict[str, Any]


def _stream(dispatches: int, layouts: int, casts: int, cast_ns: int, stream: int = 27) -> list[Row]:
    """One kernel after the other: dispatches of 1 µs, layouts of 200 ns."""
    lengths = [(DISPATCH, 1000)] * dispatches + [(LAYOUT, 200)] * layouts + [(CAST, cast_ns)] * casts
    ops, at = [], 0
    for name, length in lengths:
        ops.append(op(at, at + length, name, stream))
        at += length
    return ops


def _kind(ops: list[Row]) -> str:
    return str(streams(make(ops=ops), WindowSpec()).rows["kind"][0])


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        (_stream(9, 0, 1, 90), "comm"),  # a tenth of the kernels, 90 of 9,090 ns
        (_stream(8, 0, 1, 9), "compute"),  # more than a tenth
        (_stream(9, 0, 1, 91), "compute"),  # a tenth, but 91 of 9,091 ns
        (_stream(9, 5, 1, 100), "comm"),  # layouts are the library's own: they make room, and take none
        (_stream(1, 9, 0, 0), "comm"),
        (_stream(0, 1, 0, 0), "compute"),  # helpers of nothing
        (_stream(0, 0, 1, 9), "compute"),
    ],
)
def test_helpers_leave_a_stream_to_communication(ops: list[Row], kind: str):
    assert _kind(ops) == kind
    rows = overlap(make(ops=[*ops, *_stream(1, 0, 0, 0, stream=9)]), WindowSpec(), by="stream").rows
    of = {r["stream"]: r for r in rows.to_dicts()}
    sent = sum(o["end_ns"] - o["start_ns"] for o in ops if o["name"] == DISPATCH)
    if sent:
        assert (of[27]["comm_ns"], of[27]["barrier_ns"]) == ((sent, 0) if kind == "comm" else (0, sent))


def test_a_helper_stays_compute():
    rows = streams(make(ops=_stream(9, 2, 1, 90)), WindowSpec()).rows
    assert rows.select("n_comm", "n_comp", "comm_ns", "comp_ns").row(0) == (9, 3, 9000, 490)
    hidden = overlap(make(ops=[op(0, 100, LAYOUT, 27), op(0, 1000, DISPATCH, 9)]), WindowSpec()).rows
    assert hidden["exposed_ns"].to_list() == [900]  # of another stream it hides what it covers


def test_streams_of_two_devices_are_two_streams():
    ops = [op(0, 10, DISPATCH, 7, device=0), op(0, 10, CAST, 7, device=1)]
    rows = overlap(make(ops=ops), WindowSpec(), by="stream").rows
    assert rows.select("n", "barrier_ns").row(0) == (1, 0)


kernel = st.tuples(st.sampled_from([DISPATCH, LAYOUT, CAST]), st.integers(1, 40), st.sampled_from([5, 6]))


@given(st.lists(kernel, min_size=1, max_size=40), st.integers(0, 20))
@pytest.mark.slow
def test_the_rule_equals_brute_force(kernels: list[tuple[str, int, int]], more: int):
    ops, at = [], 0
    for name, length, stream in [*kernels, *[(DISPATCH, 100, 5)] * more]:
        ops.append(op(at, at + length, name, stream))
        at += length
    for row in streams(make(ops=ops), WindowSpec()).rows.to_dicts():
        mine = [(o["name"], o["end_ns"] - o["start_ns"]) for o in ops if o["stream"] == row["stream"]]
        sends = any(name == DISPATCH for name, _ in mine)
        casts = [length for name, length in mine if name == CAST]
        few = 10 * len(casts) <= len(mine) and 100 * sum(casts) <= sum(length for _, length in mine)
        assert row["kind"] == ("comm" if sends and few else "compute")


def test_operations_by_name():
    names = {
        DISPATCH: "all_to_all",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)": "all_to_all",
        "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
        "nvshmemx_barrier_all_on_stream_kernel": "barrier",
        "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(int)": "all_to_all",
        "void a2a_combine_recv_kernel<16, 8>(unsigned long)": "all_to_all",
        "moeA2ADispatchKernel<8, false>(int const*)": "all_to_all",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "all_reduce",
        "void quickreduce::allreduce_prototype_twoshot<half>(half const*)": "all_reduce",
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "all_reduce",
        "void multimem_all_gather_kernel<16>(char*)": "all_gather",
        "void aiter::reduce_scatter_cross_device_store<bf16, 8>(aiter::RankData*)": "reduce_scatter",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    }
    assert kinds(pl.Series(list(names))).to_list() == list(names.values())


@pytest.fixture(scope="module")
def dualpipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.json of deepseek-ai/profile-data, where its mirror is at hand."""
    mirror = Path(__file__).resolve().parents[4] / ".mirror/deepseek-ai+profile-data/repo"
    if not mirror.is_dir():
        pytest.skip("no mirror of deepseek-ai/profile-data")
    path = tmp_path_factory.mktemp("dualpipe") / "train.json"
    git = ["git", f"--git-dir={mirror}", "show", "HEAD:train.json"]
    path.write_bytes(subprocess.run(git, check=True, capture_output=True).stdout)
    return path


def test_dualpipe_hides_its_all_to_alls(dualpipe: Path):
    """Counted from the file: 32 dispatch, combine and notify kernels, 113,030 µs; 4,162 µs beside no compute."""
    profile = api.open(dualpipe, cache=False)
    row = overlap(profile, WindowSpec(), by="purpose").rows.to_dicts()
    assert [(r["purpose"], r["n"], r["comm_ns"], r["barrier_ns"]) for r in row] == [("ep_a2a", 32, 113_030_000, 0)]
    assert row[0]["exposed_ns"] == 4_162_000
    assert profile.breakdown().rows["comm_exposed_ns"].to_list() == [4_162_000]
    assert {r["stream"]: r["kind"] for r in profile.streams().rows.to_dicts()} == {
        7: "compute",
        23: "compute",
        27: "comm",
    }
