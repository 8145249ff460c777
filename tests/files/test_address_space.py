"""`ulimit -v`: where it leaves too little, one line says so while that can still be said."""

from __future__ import annotations

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
