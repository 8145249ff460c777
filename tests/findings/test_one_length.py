"""One step has one length: on traces of one rank every command gives the same, to the nanosecond."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from marks import slow_unless
from stepscope import api
from stepscope.compare.run import measure
from stepscope.compare.steps import StepSpec
from stepscope.model.profile import Profile
from stepscope.report.asker import Asker
from stepscope.report.gather import gather

DATA = Path(__file__).parents[1] / "data"
COMMITTED = (
    "compile/torch2.11_h200_broken.pt.trace.json.gz",
    "compile/torch2.11_h200_broken.sqlite.gz",
    "compile/torch2.11_h200_whole.pt.trace.json.gz",
    "h200/train/eager.sqlite.xz",
    "h200/train/slow_dataloader.sqlite.xz",
    "source/backtrace.sqlite.gz",
)
SHARED = (
    "h200/hf/hf1_healthy.sqlite",
    "h200/hf/hf1_data.rank0.pt.trace.json.gz",
    "h200/hf/jax_graphs.sqlite",
    "h200/train/eager.pt.trace.json.gz",
    "public/aiprof_baseline_nvtx.sqlite",
    "public/h100_qwen.json.gz",
    "public/hta_diff_test.json.gz",
    "public/luatil_04.json.gz",
    "public/mi300x_qwen.json.gz",
    "public/puzzler_cudagraph.json.gz",
    "public/t4_power_iteration.sqlite",
)


@pytest.mark.parametrize("trace", COMMITTED)
def test_committed_traces(trace: str, tmp_path: Path):
    file = DATA / trace
    if ".sqlite." in file.name:
        unpack = gzip.decompress if file.suffix == ".gz" else lzma.decompress
        file = tmp_path / file.stem
        file.write_bytes(unpack((DATA / trace).read_bytes()))
    _agreed(api.open(file, cache=False))


@pytest.mark.parametrize(
    "trace", slow_unless(("public/luatil_04.json.gz", "h200/hf/hf1_healthy.sqlite").__contains__, SHARED)
)
def test_shared_traces(trace: str, shared: Path):
    _agreed(api.open(shared / "traces" / trace, cache=False))


def test_the_step_recurs_as_the_gpu_runs_it(shared: Path):
    """The host of `luatil_04` runs ahead: 22.9 ms, not the 67 from the step's begin on the host to its last op."""
    profile = api.open(shared / "traces/public/luatil_04.json.gz", cache=False)
    assert profile.breakdown().rows["window_ns"][0] == pytest.approx(22.9e6, rel=0.01)


def _agreed(profile: Profile) -> None:
    row = profile.breakdown().rows.to_dicts()[0]
    window = profile.breakdown().window[0]
    lengths = {
        "window": window["gpu_end_ns"] - window["gpu_start_ns"],
        "timeline": sum(b - a for _, a, b in _parts(profile)),
        "diagnose": profile.diagnose().summary["step_ns"],
        "critical-path": profile.critical_path().summary["step"]["step_ns"],
        "report": _report(profile),
    }
    if window["kind"] == "step":
        of_step = profile.iterations().rows.to_dicts()[window["index"]]
        assert of_step["label"] == window["label"]
        lengths |= {"iterations": of_step["gpu_ns"], "period": of_step["period_ns"]}
    run = measure(profile, StepSpec())
    if window["label"] in run.labels:  # a step that was not recorded whole is shown where no other is, and not compared
        lengths["compare"] = int(run.step_ns[run.labels.index(window["label"])])
    assert lengths == dict.fromkeys(lengths, row["window_ns"])


def _parts(profile: Profile) -> list[tuple[str, int, int]]:
    return profile.timeline(by="part").rows.select("part", "start_ns", "end_ns").rows()


def _report(profile: Profile) -> int:
    asker = Asker(lambda name, **options: api.analyse(profile, name, **options), ("trace",))
    rows = gather(asker, "stepscope report trace", drawn=False).breakdown.data["rows"]
    return int(rows[0]["window_ns"])
