"""One job recorded by both profilers: every question answers with the figures of one of them, once."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marks import slow_unless
from stepscope import api, questions
from stepscope.capture import manifest
from stepscope.cli.main import run
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.result import Result
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

REAL = Path(__file__).parents[1] / "data" / "unmodified"
SMALL = Scenario(schedule="1f1b", pp=2, dp=2, ep=1, nodes=2, layers=2, micro_batches=4, steps=3)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes by nsys, four ranks by torch.profiler, and a manifest, in one folder."""
    folder: Path = tmp_path_factory.mktemp("merged")
    simulate_to(SMALL, folder, ("nsys", "kineto"))
    scenario = {"backend": "nsys", "ranks": 4, "steps": 3, "machine": {"gpus": ["H200"]}}
    manifest.write(folder, {"scenario": scenario, "captured": {"unprofiled_step_ns": [50_000_000]}})
    return folder


@pytest.fixture(scope="module")
def opened(merged: Path) -> dict[str, api.Profile]:
    """Both together, and each alone."""
    given = {"both": merged, "nsys": merged / "*.sqlite", "torch": merged / "*.pt.trace.json.gz"}
    return {name: api.open(path, cache=False) for name, path in given.items()}


def answer(profile: api.Profile, name: str, **options: Any) -> Result | str:
    try:
        return api.analyse(profile, name, **options)
    except (CannotAnswer, BadInput) as error:
        return str(error)


@pytest.mark.parametrize("name", slow_unless(lambda name: name not in ("diagnose", "critical-path"), questions.names()))
def test_every_question_has_the_figures_of_one_of_them(opened: dict[str, api.Profile], name: str) -> None:
    both, nsys, torch = (answer(opened[which], name) for which in ("both", "nsys", "torch"))
    expected = torch if isinstance(nsys, str) and isinstance(torch, Result) else nsys
    if isinstance(expected, str):
        assert both == expected
        return
    assert isinstance(both, Result)
    ours, theirs = (result.rows.drop("command", strict=False) for result in (both, expected))  # it names the files
    assert ours.equals(theirs) and both.summary == expected.summary
    assert both.ranks == expected.ranks == 4 and both.sources == expected.sources
    codes = [note.code for note in both.notes]
    assert ("two-captures" in codes, "other-capture" in codes) == ((True, False) if expected is nsys else (False, True))


@pytest.fixture
def unpacked(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    def folder(*names: str, flat: bool) -> Path:
        for name in names:
            with tarfile.open(REAL / f"{name}.tar.xz") as packed:
                packed.extractall(tmp_path / "packed", filter="data")
            to = tmp_path / "cap" if flat else tmp_path / "cap" / name.rpartition(".")[2]
            shutil.copytree(tmp_path / "packed" / name, to, dirs_exist_ok=True)
        return tmp_path / "cap"

    yield folder


@pytest.mark.parametrize("flat", [True, False])
def test_what_nsys_lacks_torch_tells(unpacked: Callable[..., Path], flat: bool) -> None:
    """A real capture with stacks by torch.profiler alone; in one folder, or as `--backend both` leaves them."""
    folder = unpacked("hf1.nsys", "hf1.torch", flat=flat)
    alone = folder if flat else folder / "torch"
    torch = api.open(str(alone / "*.pt.trace.json.gz"), cache=False)
    nsys = api.open(str((folder if flat else folder / "nsys") / "*.sqlite"), cache=False)
    both = api.open(folder, cache=False)
    answers = {name: [answer(p, name) for p in (both, nsys, torch)] for name in ("breakdown", "source", "memory")}
    for of_both, of_nsys, of_torch in answers.values():
        assert isinstance(of_both, Result)
        expected = of_torch if isinstance(of_nsys, str) else of_nsys
        assert isinstance(expected, Result) and of_both.rows.drop("command", strict=False).equals(
            expected.rows.drop("command", strict=False)
        )
    by_torch = [name for name, (_, of_nsys, _) in answers.items() if isinstance(of_nsys, str)]
    assert by_torch and "breakdown" not in by_torch
    note = next(n for n in answers[by_torch[0]][0].notes if n.code == "other-capture")  # type: ignore[union-attr]
    assert str(note).startswith("figures come from torch.profiler; the other capture lacks this: ")


def test_the_other_is_only_read_where_it_is_needed(merged: Path, tmp_path: Path) -> None:
    for file in merged.glob("*.sqlite"):
        shutil.copy(file, tmp_path)
    (tmp_path / "rank0.pt.trace.json").write_text('{"traceEvents": [ cut off')
    assert api.open(tmp_path, cache=False).breakdown().rows.height == 4
    with pytest.raises(BadInput, match=r"rank0\.pt\.trace\.json"):
        api.open(tmp_path, cache=False).source()


def test_other_ranks_are_ranks_like_any_other(merged: Path) -> None:
    """Node 0 by nsys, node 1 by torch.profiler: four ranks of one profile."""
    profile = api.open(merged / "node0.sqlite", *(merged / f"rank{r}.pt.trace.json.gz" for r in (2, 3)), cache=False)
    assert profile.rank_ids() == [0, 1, 2, 3] and not profile.others
    both = api.open(merged / "node0.sqlite", merged / "rank1.pt.trace.json.gz", cache=False)
    assert both.rank_ids() == [0, 1] and list(both.others) == ["torch.profiler"]


def test_some_ranks_of_the_other(opened: dict[str, api.Profile]) -> None:
    limited = opened["both"].view([1, 2])
    result = api.analyse(limited, "breakdown")
    assert result.rows["rank"].to_list() == [1, 2]
    torch = next(iter(limited.others.values()))()
    assert torch.rank_ids() == [0, 1, 2, 3]  # as it was; a question asked there is of the same ranks


def test_each_capture_is_verified_by_what_is_known_of_it(merged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["capture", "verify", str(merged), "--no-cache", "--format", "json"])
    checks = {row["check"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert checks["nsys: ranks"]["expected"] == "4 ranks" and checks["nsys: steps"]["status"] == "ok"
    assert checks["torch.profiler: ranks"]["found"] == "4 ranks (0-3)"  # whose manifest this is not
    assert len(checks) % 2 == 0 and all(name.startswith(("nsys: ", "torch.profiler: ")) for name in checks)


def _printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run([*arguments, "--no-cache"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["stats", "--report", "cuda_gpu_kern_sum"], ["stats", "--report", "nvtx_sum"], ["rules"]]
)
def test_what_nsys_prints_is_the_same(merged: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    of_both, of_nsys = (_printed([*words, str(path)], capsys) for path in (merged, merged / "*.sqlite"))
    assert of_both == of_nsys


@pytest.mark.slow
def test_other_commands_take_the_folder(merged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nsys (2 files) and torch.profiler (4 files) recorded this job" in _printed(["report", str(merged)], capsys)
    assert "recorded this job" in " ".join(_printed(["recipe", "cuda_gpu_kern_sum", str(merged)], capsys).split())
    _printed(["export", str(merged), "-o", str(tmp_path / "job.pftrace")], capsys)
    assert (tmp_path / "job.pftrace").stat().st_size > 0


def test_compare_takes_one_of_them(merged: Path) -> None:
    result = api.compare(merged, merged / "*.sqlite", cache=False)
    assert {source.format for source in result.sources} == {"nsys-sqlite"}


@pytest.fixture
def folders(merged: Path, tmp_path: Path) -> list[str]:
    """Each node captured for itself, and counted its own ranks alone."""
    made = []
    for node in range(2):
        folder = tmp_path / f"host{node}"
        (folder / "items").mkdir(parents=True)
        shutil.copy(merged / f"node{node}.sqlite", folder / "report1.sqlite")
        (folder / "report1.nsys-rep").write_text("NVIDIA Tegra Profiler Report")
        (folder / "items" / f"rank{node}.jsonl").write_text("{}")
        (folder / "log.txt").write_text(f"said on node {node}")
        times = {str(rank): [[60_000_000, True]] * 3 for rank in (2 * node, 2 * node + 1)}
        scenario = {"backend": "nsys", "ranks": 2, "steps": 3, "machine": {"gpus": ["H200"]}}
        manifest.write(folder, {"scenario": scenario, "captured": {"step_ns": times}})
        made.append(str(folder))
    return made


def test_folders_of_several_nodes_are_one_job(
    merged: Path, folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capture", "verify", *folders, "--no-cache", "--format", "json"]) == 0
    checks = {row["check"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert checks["ranks"]["expected"] == "4 ranks" and checks["ranks"]["status"] == "ok"
    assert run(["capture", "verify", folders[0], "--no-cache", "--format", "json"]) == 0  # all that this one knows
    capsys.readouterr()
    together = api.open(*folders, cache=False).breakdown().rows
    assert together.equals(api.open(merged / "*.sqlite", cache=False).breakdown().rows)


def test_manifests_of_other_runs_and_profilers_are_left_out() -> None:
    from stepscope.capture.manifest import merged as together

    def content(backend: str, ranks: list[int], stated: int | None = None) -> dict[str, Any]:
        times = {str(rank): [[rank, True]] for rank in ranks}
        said = {"backend": backend, "ranks": stated, "traced": None}
        return {"scenario": said, "captured": {"step_ns": times, "files": [{"name": str(ranks)}]}}

    whole = together([content("nsys", [0, 1], 4), content("nsys", [0, 1], 4), content("torch", [2, 3]),
                      content("nsys", [2, 3], 4)])  # fmt: skip
    assert whole is not None and whole["scenario"]["ranks"] == 4
    assert whole["captured"]["step_ns"] == {str(rank): [[rank, True]] for rank in range(4)}
    assert [f["name"] for f in whole["captured"]["files"]] == ["[0, 1]", "[2, 3]"]


def test_merge_makes_one_folder_of_nodes(
    merged: Path, folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job"
    assert run(["capture", "merge", *folders, "-o", str(job)]) == 0
    assert f"4 ranks in 2 files; next: stepscope diagnose {job}" in capsys.readouterr().out
    names = {str(path.relative_to(job)) for path in job.rglob("*") if path.is_file()}
    reports = {f"host{n}.report1.{suffix}" for n in range(2) for suffix in ("sqlite", "nsys-rep")}
    beside = {f"items/rank{n}.jsonl" for n in range(2)} | {f"log.host{n}.txt" for n in range(2)}
    assert names == reports | beside | {"manifest.json"}
    assert (job / "host0.report1.sqlite").samefile(Path(folders[0]) / "report1.sqlite")  # a link, not a copy
    content = manifest.read(job)
    assert content is not None and content["scenario"]["ranks"] == 4
    alone = api.open(merged / "*.sqlite", cache=False).breakdown().rows
    assert api.open(job, cache=False).breakdown().rows.equals(alone)
    assert run(["capture", "merge", *folders, "-o", str(job)]) == 2  # nothing is overwritten
    assert "already exists" in capsys.readouterr().err


def test_merge_of_both_profilers(merged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for file in merged.glob("rank*.pt.trace.json.gz"):
        shutil.copy(file, traces)
    job = tmp_path / "job"
    assert run(["capture", "merge", str(merged / "*.sqlite"), str(traces), "-o", str(job)]) == 0
    assert sorted(p.name for p in (job / "nsys").iterdir()) == ["manifest.json", "node0.sqlite", "node1.sqlite"]
    assert sorted(p.name for p in (job / "torch").iterdir()) == [f"rank{r}.pt.trace.json.gz" for r in range(4)]
    assert api.open(job, cache=False).rank_ids() == [0, 1, 2, 3]


def test_merge_of_a_rank_twice_leaves_nothing(merged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = shutil.copy(merged / "node0.sqlite", tmp_path / "again.sqlite")
    assert run(["capture", "merge", str(merged / "*.sqlite"), str(again), "-o", str(tmp_path / "job")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["again.sqlite"]
