"""`ulimit -v`: where it leaves too little, one line says so while that can still be said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = """
import resource
from stepscope.errors import BadInput
from stepscope.files import budget
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + {left}, resource.RLIM_INFINITY))
try:
    print(budget.available() <= {left})
except BadInput as error:
    print(error)
"""


def _said(left: int) -> str:
    done = subprocess.run([sys.executable, "-c", ASK.format(left=left)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and ulimit -v")
def test_what_the_limit_leaves_is_the_budget() -> None:
    assert _said(1 << 30) == "True"
    assert _said(64 << 20).startswith("`ulimit -v` leaves ") and "too little to work with" in _said(64 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and ulimit -v")
@pytest.mark.parametrize("kilobytes", [500_000, 700_000, 800_000, 900_000, 1_000_000, 1_200_000])
def test_a_limit_that_the_libraries_would_use_up_is_refused_before_they_are_loaded(kilobytes: int) -> None:
    """They abort (status 134, or 139) without a word of ours."""
    script = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({kilobytes} << 10, resource.RLIM_INFINITY))
from stepscope.cli.main import run
status = run(["diagnose", "nothing.sqlite"])
sys.exit(100 if "polars" in sys.modules else status)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr[-300:]
    assert done.stderr.startswith("stepscope: `ulimit -v` allows ") and done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and ulimit -v")
def test_python_is_refused_in_the_same_line() -> None:
    script = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (800_000 << 10, resource.RLIM_INFINITY))
import stepscope
try:
    stepscope.open("nothing.sqlite")
except stepscope.BadInput as error:
    print(error, "polars" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("`ulimit -v` allows 781 MiB of addresses") and done.stdout.endswith("False\n")


@pytest.mark.parametrize("said", ["0", "-1", "many"])
def test_threads_that_the_library_of_tables_panics_at_are_refused(said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "info", "nothing.sqlite"], capture_output=True, text=True, check=False,
        env={**os.environ, "POLARS_MAX_THREADS": said},
    )  # fmt: skip
    expected = f"stepscope: POLARS_MAX_THREADS={said} is not a number of threads; set it to 1 or more, or unset it\n"
    assert (done.returncode, done.stderr) == (2, expected)
