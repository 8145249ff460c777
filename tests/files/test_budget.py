"""The budget: sizes as people write them, and what a machine or its cgroups have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepscope.errors import BadInput
from stepscope.files import budget

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _default_afterwards(monkeypatch):
    monkeypatch.delenv(budget.ENV, raising=False)
    budget._default.cache_clear()  # what this machine has, where a test before asked for it
    yield
    budget.keep(None)
    budget._default.cache_clear()  # and what that of a test has


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", GIB),
        ("500MB", 500_000_000),
        ("1.5g", 1_500_000_000),
        (" 2 Gi ", 2 * GIB),
        ("300000000", 300_000_000),
        ("0.5tib", 1 << 39),
        (512 << 20, 512 << 20),
    ],
)
def test_sizes(text, size):
    assert budget.parse(text) == size


@pytest.mark.parametrize("text", ["", "much", "1 GiB more", "-1GiB", "1iB", "1e9", "GiB", "1PB", "9" * 400])
def test_what_is_not_a_size_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match=r"--memory .* is not a size; write 1GiB or 500MB"):
        budget.parse(text)


def test_too_little_is_refused():
    with pytest.raises(BadInput, match="--memory 100MiB: too little to work with; give 256MiB or more"):
        budget.parse("100MiB")


def test_an_option_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv(budget.ENV, "2GiB")
    assert budget.total() == 2 * GIB
    budget.keep("1GiB")
    assert budget.total() == GIB
    budget.keep(None)
    assert budget.total() == 2 * GIB
    monkeypatch.setenv(budget.ENV, "lots")
    with pytest.raises(BadInput, match="STEPSCOPE_MEMORY='lots' is not a size"):
        budget.total()


def test_by_default_a_share_of_what_there_is():
    there = budget.available()
    assert there is not None
    assert budget.total() == max(budget.LEAST, int(budget.SHARE * there))


def system(root: Path, cgroup: str, mounts: list[str], limits: dict[str, str]) -> Path:
    """The files of a system that are asked, below `root`."""
    files = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": "\n".join(mounts), **limits}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


V1 = "34 25 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
MACHINE = 64 * GIB


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(budget, "_of_machine", lambda: [MACHINE])


def test_a_limit_of_version_2(tmp_path):
    at = "sys/fs/cgroup/slurm/job_7"
    root = system(
        tmp_path, "0::/slurm/job_7/step_0", [V2], {f"{at}/memory.max": str(8 * GIB), f"{at}/step_0/memory.max": "max"}
    )
    assert budget.available(root) == 8 * GIB


def test_the_soft_limit_of_version_2_counts(tmp_path):
    limits = {"sys/fs/cgroup/a/memory.max": str(8 * GIB), "sys/fs/cgroup/a/memory.high": str(6 * GIB)}
    assert budget.available(system(tmp_path, "0::/a", [V2], limits)) == 6 * GIB


def test_a_limit_of_version_1(tmp_path):
    limits = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/docker/memory.limit_in_bytes": str(4 * GIB),
        "sys/fs/cgroup/memory/docker/one/memory.limit_in_bytes": str(5 * GIB),
    }
    lines = "5:devices:/docker/one\n4:cpuset,memory:/docker/one\n0::/"
    assert budget.available(system(tmp_path, lines, [V1], limits)) == 4 * GIB


def test_a_container_that_sees_the_path_of_its_host(tmp_path):
    """The path is not below the mount: the mount is the cgroup itself."""
    limits = {"sys/fs/cgroup/memory.max": str(2 * GIB)}
    assert budget.available(system(tmp_path, "0::/../../pods/pod1", [V2], limits)) == 2 * GIB
    assert budget.available(system(tmp_path, "0::/pods/pod1", [V2], limits)) == 2 * GIB


def test_without_a_limit_the_machine(tmp_path):
    assert budget.available(system(tmp_path, "0::/a", [V2], {"sys/fs/cgroup/a/memory.max": "max"})) == MACHINE
    assert budget.available(system(tmp_path / "bare", "nonsense", ["nonsense"], {})) == MACHINE
    assert budget.available(tmp_path / "nowhere") == MACHINE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say")
def test_what_is_held_counts_and_mapped_files_do_not(tmp_path):
    before = budget.used()
    held = np.ones(8_000_000)
    assert 60_000_000 < budget.used() - before < 80_000_000
    held.tofile(tmp_path / "f")
    del held
    before = budget.used()
    file = np.memmap(tmp_path / "f", mode="r")
    assert int(file.view(np.float64).sum()) == 8_000_000
    assert budget.used() - before < 10_000_000


def test_holes_are_given_back_once_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two pieces of long work: not after each of them, and again from a new low on."""
    now, given = [0], []
    monkeypatch.setattr(budget, "_settled", 0)
    monkeypatch.setattr(budget, "used", lambda: now[0])
    monkeypatch.setattr(budget, "give_back", lambda: given.append(now[0]))
    for mb in (100, 129, 200, 260, 50, 150, 179):
        now[0] = mb << 20
        budget.settle()
    assert [size >> 20 for size in given] == [129, 260, 179]
