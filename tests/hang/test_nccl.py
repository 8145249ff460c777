"""Real dumps: eight NCCL ranks on one H200, with a fault planted in each job (tests/hang/nccl has the programs).

Most jobs were dumped seconds after they stood still; nothing changes later, so the manifest says a minute later for
them. Those that waited for more than 20 seconds are judged as they are.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from stepscope import api
from stepscope.errors import StepscopeError

ARCHIVE = Path(__file__).parents[1] / "data" / "nccl" / "hangs.tar.xz"
#: By fault, what it may be called.
CLASSES = {
    "host": {"host-stopped"},
    "frozen": {"host-stopped"},
    "gpu": {"gpu-stopped"},
    "link": {"link-dead"},
    "skip": {"mismatch-order"},
    "order": {"mismatch-order"},
    "extra": {"mismatch-order"},
    "short": {"mismatch-order"},
    "deadlock": {"deadlock"},
    "size": {"mismatch-size"},
    "type": {"mismatch-type"},
    "kind": {"mismatch-type"},
    "group": {"mismatch-group"},
    "crash": {"crashed"},
    "oom": {"out-of-memory"},
}
with tarfile.open(ARCHIVE) as _tar:
    JOBS = sorted({name.split("/")[0] for name in _tar.getnames()})
    DONE_AT_ONCE = 20 * 10**9


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nccl")
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(folder, filter="data")
    for job in folder.iterdir():
        truth, manifest = (json.loads((job / name).read_text()) for name in ("truth.json", "hang.json"))
        times = manifest["dumped_ns"]
        if truth["fault"] not in ("healthy", "slow") and min(times.values()) - truth["still_ns"] < DONE_AT_ONCE:
            manifest["dumped_ns"] = {rank: when + 60 * 10**9 for rank, when in times.items()}
        (job / "hang.json").write_text(json.dumps(manifest))
    return folder


def right(truth, said):
    """Whether the class and the rank are those that were planted."""
    if truth["fault"] in ("healthy", "slow"):
        return not said["hung"]
    kinds = {said["verdict"], *said["also_possible"]}
    return said["hung"] and bool(CLASSES[truth["fault"]] & kinds) and truth["rank"] in said["culprits"]


@pytest.mark.parametrize("name", JOBS)
def test_with_all_that_lies_beside(jobs, name):
    truth = json.loads((jobs / name / "truth.json").read_text())
    said = api.hang(jobs / name).summary
    assert right(truth, said), (truth, said["statement"], said["also_possible"])
    if truth["fault"] in ("host", "gpu", "size", "type", "group") and truth["timing"]:
        assert said["culprits"] == [truth["rank"]]


@pytest.mark.parametrize("name", [name for name in JOBS if not name.startswith("oom")])
def test_by_the_dumps_alone(jobs, name, tmp_path):
    truth = json.loads((jobs / name / "truth.json").read_text())
    for path in (*(jobs / name).glob("nccl_trace_rank_?"), jobs / name / "hang.json"):
        shutil.copy2(path, tmp_path)
    said = api.hang(tmp_path).summary
    assert right(truth, said), (truth, said["statement"], said["also_possible"])


@pytest.mark.parametrize("name", JOBS)
def test_a_dump_in_both_formats_says_the_same(jobs, name, tmp_path):
    """JSON has no stacks: what a call was is told by its group and its sizes."""
    truth = json.loads((jobs / name / "truth.json").read_text())
    files = sorted((jobs / name).glob("nccl_trace_rank_?.json"))
    if not files:
        pytest.skip("was dumped as pickles alone")
    for path in (*files, jobs / name / "hang.json"):
        shutil.copy2(path, tmp_path)
    said = api.hang(tmp_path).summary
    assert right(truth, said), (truth, said["statement"], said["also_possible"])


def test_dumps_cut_anywhere_are_refused_or_read(jobs, tmp_path):
    for n, path in enumerate(sorted((jobs / JOBS[0]).glob("nccl_trace_rank_?"))):
        data = path.read_bytes()
        (tmp_path / path.name).write_bytes(data[: len(data) * (n + 1) // 9])
    with pytest.raises(StepscopeError) as error:
        api.hang(tmp_path)
    assert "\n" not in str(error.value)
