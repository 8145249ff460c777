"""`capture verify`, `critical-path`, `diagnose`, `compare` and `iterations` mean the same by "step".

What the steps of each real trace are was read off its ranges by eye; what each command takes for them comes from its
answer.
"""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fake import Row, call, make, nvtx, op
from marks import slow_unless
from stepscope import api
from stepscope.analyses.critical_path import critical_path
from stepscope.analyses.iterations import iterations
from stepscope.compare.run import measure
from stepscope.compare.steps import StepSpec
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import WHOLE
from stepscope.errors import CannotAnswer, GateFailed
from stepscope.findings.case import Case
from stepscope.model.profile import Profile
from stepscope.verify import verify

DATA = Path(__file__).parents[2] / "data"


@dataclass(frozen=True)
class Steps:
    """First and last of the steps, and how many."""

    first: str
    last: str
    count: int
    #: whether ranges mark them; else their pace is told by chunks that recur, and the window is the capture
    marked: bool = True
    #: a capture of one step of a pipeline: what recurs are its chunks
    chunks: bool = False


@dataclass(frozen=True)
class Chunks:
    """The same of chunks, where nothing marks the step."""

    first: str
    last: str
    count: int


FIRST, LAST = (
    "forward chunk 0 (phase0) backward chunk -2 (phase1)",
    "forward chunk 7 (phase1) backward chunk 5 (phase0)",
)
EIGHT = Chunks(FIRST, LAST, 8)
AGAIN = Steps("from forward chunk 0 #0", "from forward chunk 0 #2", 3, marked=False)


def steps(name: str, first: int, last: int) -> Steps:
    """Numbered one after the other."""
    return Steps(f"{name}{first}", f"{name}{last}", last - first + 1)


def torch(first: int, last: int) -> Steps:
    return steps("ProfilerStep#", first, last)


JAX = "XlaModule:#hlo_module=jit_step,program_id=4642# #"

SHARED: dict[str, Steps | Chunks | None] = {
    **{
        f"h200/hf/hf1_{n}.sqlite": steps("train step ", 13, 15)
        for n in ("healthy", "data", "emptycache", "compiled", "rich")
    },
    **{f"h200/hf/hf1_{n}.rank0.pt.trace.json.gz": torch(13, 15) for n in ("healthy", "data", "emptycache", "compiled")},
    **{f"h200/hf/hf4_{n}.sqlite": steps("train step ", 13, 15) for n in ("healthy", "straggler")},
    **{f"h200/hf/hf4_{n}.rank*.pt.trace.json.gz": torch(13, 15) for n in ("healthy", "straggler")},
    "h200/hf/jax_graphs.sqlite": steps(JAX, 0, 4),
    "h200/moe4/overlapped.sqlite": EIGHT,
    "h200/moe4/serialized.sqlite": EIGHT,
    "h200/moe4/overlapped.rank*.pt.trace.json.gz": torch(5, 5),
    "h200/moe4mps/overlapped.sqlite": EIGHT,
    "h200/moe4mps/serialized.sqlite": EIGHT,
    "h200/moe4mps/cut_off.sqlite": EIGHT,
    "h200/moe4mps/overlapped.rank*.pt.trace.json.gz": torch(5, 5),
    "h200/payloads/overlapped.sqlite": AGAIN,
    "h200/payloads/overlapped_pqtdir": AGAIN,
    "h200/train/eager.sqlite": steps("step ", 5, 8),
    "h200/train/slow_dataloader.sqlite": steps("step ", 5, 8),
    "h200/train/eager.pt.trace.json.gz": torch(1, 4),
    "h200/train/compiled.pt.trace.json.gz": torch(1, 4),
    "public/a100_cuda_graphs.sqlite": None,
    "public/a100_lm2.7b_nvtx.sqlite": None,
    "public/a100_nccl_metadata_world2.json.gz": torch(4, 6),
    "public/a100_saxpy_mpi.rank*.sqlite": None,
    "public/aiprof_baseline.sqlite": None,
    "public/aiprof_baseline_nvtx.sqlite": steps("Batch ", 0, 58),
    "public/amd_merged_all.json.gz": torch(9, 11),
    "public/dlrm8/dlrm_kineto": torch(10, 10),
    "public/h100_qwen.json.gz": torch(6, 6),
    "public/h100x2_after.sqlite": None,
    "public/h100x2_before.sqlite": None,
    "public/hta_diff_control.json.gz": torch(1009, 1014),
    "public/hta_diff_test.json.gz": torch(1009, 1014),
    "public/kineto_res50_old_categories.pt.trace.json.gz": torch(16, 21),
    "public/luatil_04.json.gz": torch(2, 6),
    "public/mi300x_4ranks_merged_nccl.json.gz": None,
    "public/mi300x_qwen.json.gz": torch(6, 6),
    "public/nsysai_2gpu_1s.sqlite": None,
    "public/puzzler_cudagraph.json.gz": None,
    "public/puzzler_d2h_sync.json.gz": None,
    "public/rtx5000ada_windows.sqlite": None,
    "public/t4_power_iteration.sqlite": Steps("Step 0 to 10", "Step 430 to 440", 44),
    "public/titan_no_kernel_table.sqlite": None,
    "public/tl_mi300_resnet_ckpt.json.gz": torch(15, 17),
    "public/tl_xdit_flux_capture.json.gz": None,
    "public/toke_ann*.json.gz": None,  # its layers are numbered: no steps
    "public/world128.rank*.json.gz": torch(551, 552),
}
#: Not profiles, or refused as broken.
OTHERS = r"\.md$|\.csv$|\.pickle$|ncu-rep$|nsys-rep$|invalid_json|\.parquet$"

COMMITTED: dict[str, Steps | Chunks | None] = {
    "compile/torch2.11_h200_broken.pt.trace.json.gz": steps("Optimizer.step#SGD.step #", 0, 2),
    "compile/torch2.11_h200_broken.sqlite.gz": steps("step ", 3, 5),
    "compile/torch2.11_h200_whole.pt.trace.json.gz": steps("Optimizer.step#SGD.step #", 0, 2),
    "compile/torch2.13_broken.pt.trace.json.gz": torch(1, 4),
    "compile/torch2.13_whole.pt.trace.json.gz": torch(1, 4),
    "h200/memory/qwen3_kineto.pt.trace.json.gz": None,
    "h200/moe4/overlapped.sqlite.xz": EIGHT,
    "h200/moe4mps/overlapped.sqlite.xz": EIGHT,
    "h200/payloads/overlapped.sqlite.xz": AGAIN,
    "h200/train/eager.sqlite.xz": steps("step ", 5, 8),
    "h200/train/slow_dataloader.sqlite.xz": steps("step ", 5, 8),
    "source/backtrace.sqlite.gz": steps("step ", 4, 5),
}
REFERENCE = {path.name.split(".")[0] for path in (DATA / "moe_reference").glob("*.tar.xz")}


def test_no_trace_is_left_out(shared: Path) -> None:
    listed = {p for name in SHARED for p in (shared / "traces").glob(name)}
    traces = {p for p in (shared / "traces").rglob("*") if p.is_file() and not re.search(OTHERS, p.name)}
    assert {p for p in traces if p not in listed and p.parent not in listed} == set()
    packed = [p for folder in ("compile", "h200", "source") for p in (DATA / folder).rglob("*.[gx]z")]
    profiles = [p for p in packed if ".pickle" not in p.name]
    assert {p.relative_to(DATA).as_posix() for p in profiles} == set(COMMITTED)


#: Those whose steps are unlike the steps of the others: of chunks, of other words, of several files, none.
UNLIKE = {
    "h200/hf/hf1_healthy.sqlite",
    "h200/hf/jax_graphs.sqlite",
    "h200/moe4/overlapped.sqlite",
    "h200/payloads/overlapped.sqlite",
    "h200/train/eager.sqlite",
    "h200/train/eager.pt.trace.json.gz",
    "public/a100_cuda_graphs.sqlite",
    "public/aiprof_baseline_nvtx.sqlite",
    "public/luatil_04.json.gz",
    "public/mi300x_4ranks_merged_nccl.json.gz",
    "public/t4_power_iteration.sqlite",
    "public/toke_ann*.json.gz",
    "public/world128.rank*.json.gz",
}


@pytest.mark.parametrize("trace", slow_unless(UNLIKE.__contains__, SHARED))
def test_shared_traces(trace: str, shared: Path) -> None:
    agreed(api.open(str(shared / "traces" / trace)), SHARED[trace])


@pytest.mark.parametrize("trace", COMMITTED)
def test_committed_traces(trace: str, tmp_path: Path) -> None:
    file = DATA / trace
    if file.name.endswith((".sqlite.gz", ".sqlite.xz")):
        unpack = gzip.decompress if file.suffix == ".gz" else lzma.decompress
        file = tmp_path / file.stem
        file.write_bytes(unpack((DATA / trace).read_bytes()))
    agreed(api.open(file), COMMITTED[trace])


@pytest.mark.parametrize("name", slow_unless(("none", "dataloader").__contains__, sorted(REFERENCE)))
@pytest.mark.parametrize("backend", ["nsys", "torch"])
def test_reference_captures(name: str, backend: str, reference_capture: Callable[[str, str], Path]) -> None:
    """One step of several chunks, or three where data loading is slow. torch.profiler's step encloses the trainer's."""
    last = 2 if name == "dataloader" else 0
    expected = steps("step ", 4, 4 + last) if backend == "nsys" else torch(1, 1 + last)
    agreed(api.open(reference_capture(name, backend)), replace(expected, chunks=not last))


SPELLINGS = ["ProfilerStep#{}", "step {}", "step_{}", "Step {} of 9", "train step {}", "training_step {}", "iter {}"]
SPELLINGS += ["iteration_{}", "Iteration: {}", "iteration={}", "Batch {}", "batch_{}", "STEP {}", "step{}"]


def job(*ranges: Row, launches: int = 5) -> Profile:
    """Ranges of two ranks that launch an op in each of `launches` times 100 ns, on the GPU 1 us later."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for rank in range(2):
        at = [100 * k + 50 for k in range(launches)]
        tables["ops"] += [op(t + 1000, t + 1040, call=k + 1, proc=rank) for k, t in enumerate(at)]
        tables["calls"] += [call(t, t + 2, k + 1) | {"proc": rank} for k, t in enumerate(at)]
        tables["ranges"] += [r | {"proc": rank} for r in ranges]
    return make(**tables)


def counted(
    spelling: str, count: int = 5, first: int = 3, length: int = 100, after: int = 10, **more: Any
) -> list[Row]:
    """Ranges one after the other."""
    return [nvtx(length * k + after, length * (k + 1), spelling.format(first + k), **more) for k in range(count)]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("count", [1, 5])
def test_spellings(spelling: str, count: int) -> None:
    profile = job(*counted(spelling, count))
    labels = [spelling.format(3 + k) for k in range(count)]
    agreed(profile, Steps(labels[0], labels[-1], count))
    for k, label in enumerate(labels):
        path = critical_path(profile, WindowSpec(index=k))
        assert {row["label"] for row in path.window} == {path.summary["step"]["label"]} == {label}


@pytest.mark.parametrize("name", ["TransformerLayer_{}", "layers.{}", "blocks.{}", "forward mb {}", "micro-batch {}"])
def test_a_part_of_a_step_is_not_a_step(name: str) -> None:
    agreed(job(*counted(name)), None)


def test_an_enclosing_step_wins_even_where_it_occurs_once() -> None:
    agreed(job(nvtx(0, 500, "step 7"), *counted("iter {}")), steps("step ", 7, 7))
    agreed(job(*counted("Batch {}", after=5), *counted("step {}")), steps("Batch ", 3, 7))
    agreed(job(*counted("ProfilerStep#{}", after=5), *counted("step {}")), torch(3, 7))
    agreed(job(*counted("step {}", after=5), *counted("step {}", after=20, tid=2)), steps("step ", 3, 7))


def test_a_range_that_launched_nothing_is_not_a_step() -> None:
    before = [nvtx(10_000 * k, 10_000 * (k + 1), f"step {k}") for k in range(1, 4)]  # after the last launch
    agreed(job(*before, *counted("iter {}")), steps("iter ", 3, 7))
    agreed(job(*before), None)


def test_other_numbers_are_steps_where_they_run() -> None:
    agreed(job(*counted("sample {}")), steps("sample ", 3, 7))
    agreed(job(*counted("sample {}"), *counted("iter {}", after=40)), steps("iter ", 3, 7))
    ids = [nvtx(100 * k, 100 * (k + 1), f"request {n}") for k, n in enumerate([17, 3, 29, 30, 31])]
    agreed(job(*ids), None)


CHUNK = "forward chunk {} (phase0) backward chunk 0 (phase1)"


def test_chunks() -> None:
    one = counted(CHUNK)
    agreed(job(*one), Chunks(CHUNK.format(3), CHUNK.format(7), 5))
    agreed(job(*one, nvtx(0, 500, "step 1")), Steps("step 1", "step 1", 1, chunks=True))
    agreed(job(*one, nvtx(0, 250, "step 1"), nvtx(260, 500, "step 2")), steps("step ", 1, 2))
    again = [nvtx(100 * k, 100 * k + 90, CHUNK.format(k % 2)) for k in range(5)]
    agreed(job(*again), Steps("from forward chunk 0 #0", "from forward chunk 0 #2", 3, marked=False))


@pytest.mark.parametrize("name", ["train_step", "training step", "XlaModule:#hlo_module=jit_train_step,program_id=3#"])
def test_a_step_without_a_number_recurs(name: str) -> None:
    agreed(job(*counted(name)), Steps(f"{name} #0", f"{name} #4", 5))
    agreed(job(*counted(name, count=1)), None)


@pytest.mark.parametrize("name", ["Optimizer.step#AdamW.step", "lr_scheduler.step", "optimizer_step"])
def test_a_step_of_something_else_is_not_the_step(name: str) -> None:
    within = [nvtx(100 * k + 60, 100 * k + 90, name) for k in range(5)]
    agreed(job(*counted("iter {}"), *within), steps("iter ", 3, 7))


def test_an_optimizer_ends_the_step_where_nothing_else_does() -> None:
    name = "Optimizer.step#AdamW.step"
    ends = [nvtx(100 * k + 40, 100 * k + 90, name) for k in range(5)]
    agreed(job(*ends), Steps(f"{name} #0", f"{name} #4", 5))
    agreed(job(*ends, *[nvtx(100 * k + 91, 100 * k + 95, "Optimizer.step#SGD.step") for k in range(5)]), None)


@pytest.mark.parametrize(
    "name", ["execute_context_0(0)_generation_{}(1)", "[Executor] _forward_step {}: 0 ctx reqs", "step[DECODE bs={}]"]
)
def test_servers_run_steps(name: str) -> None:
    agreed(job(*counted(name)), Steps(name.format(3), name.format(7), 5))


def test_a_capture_without_ranges() -> None:
    agreed(job(), None)


def agreed(profile: Profile, expected: Steps | Chunks | None) -> None:
    """Every command takes these for the steps, on every rank."""
    paced = _iterations(profile)
    if isinstance(expected, Steps) and expected.chunks:
        assert all(" chunk " in label for labels in paced.values() for label in labels)
    else:
        summary = expected and (expected.first, expected.last, expected.count)
        assert {(labels[0], labels[-1], len(labels)) for labels in paced.values()} == ({summary} if summary else set())
    marked = isinstance(expected, Steps) and expected.marked
    told = isinstance(expected, Steps) and expected.count
    assert _verified(profile) == (told or None)
    if not profile.has("ops"):
        return
    case = Case(profile, WindowSpec())
    diagnosed = {rank: (w.label, w.index, w.count) for rank, w in case.windows.items()}
    for rank, (label, index, count) in (*diagnosed.items(), *_path(profile).items()):
        if isinstance(expected, Steps) and marked:
            assert count == expected.count, rank
            assert label == (expected.first if expected.chunks else paced[rank][index]), rank
        else:
            assert (label, index, count) == (WHOLE, 0, 1), rank
    busy = _iterations(profile, busy=True)
    for rank in profile.rank_ids():  # alone: of several, those that all have are compared
        try:
            compared = measure(profile.view([rank]), StepSpec()).labels
        except CannotAnswer:
            compared = []  # it has no GPU work
        wanted = busy.get(rank, [] if rank in paced or rank not in diagnosed else [WHOLE])
        if isinstance(expected, Chunks):
            wanted = [WHOLE] if wanted else []
        elif isinstance(expected, Steps) and expected.chunks:
            wanted = [expected.first] if wanted else []
        assert compared == wanted, rank


def _iterations(profile: Profile, busy: bool = False) -> dict[int, list[str]]:
    """Labels of what recurs, by rank; with `busy` of those that count: whole ones, or the first."""
    try:
        rows = iterations(profile, WindowSpec()).rows.to_dicts()
    except CannotAnswer:
        return {}
    labels: dict[int, list[str]] = {}
    whole = {row["rank"] for row in rows if row["cut"] is None}
    for row in rows:
        counts = row["cut"] is None if row["rank"] in whole else row["cut"] == "begin"
        if not busy or counts:
            labels.setdefault(row["rank"], []).append(row["label"])
    return labels


def _path(profile: Profile) -> dict[int, tuple[str, int, int]]:
    if not profile.has("calls"):
        return {}
    window = critical_path(profile, WindowSpec(), by="kind").window
    return {w["rank"]: (w["label"], w["index"], w["count"]) for w in window}


def _verified(profile: Profile) -> int | None:
    try:
        result = verify(profile, [])
    except GateFailed as failed:
        assert failed.result is not None
        result = failed.result
    row = next(row for row in result.rows.to_dicts() if row["check"] == "steps")
    assert row["status"] in ("ok", "skipped"), row
    return int(row["found"].split()[0]) if row["status"] == "ok" else None
