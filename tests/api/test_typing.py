"""What an editor and mypy know of the Python interface: right calls pass, wrong ones are named."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Calls as users write them; a line with `# wrong` must be refused.
CALLS = """
from pathlib import Path

import stepscope
from stepscope import GateFailed, Profile, Result, api

p: Profile = stepscope.open(["a.sqlite", Path("b.sqlite")], cache=False)
q: Profile = stepscope.open("c/*.sqlite", Path("d"))
r: Result = p.overlap(by="stage", anchor="chunk", index=3, rank="0,3-5", top=5)
p.overlap(start="1ms", end=2_000_000)
p.overlap(by="stag")  # wrong
p.overlap(ankor="chunk")  # wrong
p.overlp()  # wrong
p.setup(anchor="chunk")  # wrong
s: Result = p.stats("cuda_gpu_kern_sum:base", start="1ms")
t: Result = p.recipe("nccl_sum", table="rank_stats", rank=[0, 1])
p.recipe(3)  # wrong
api.compare(p, [q], by="kernel", warmup=2)
api.compare(base="a", new="b", bye="kernel")  # wrong
p.compare(q, margin=1.0)
q.gate(base="main", limits=["step=2"], allow_inconclusive=True)
q.gate("main")  # wrong
api.gate(base="main", new=q, rank="0")
page = p.report("report.html", index="median", rank=0)
page.save(Path("report.md")).name
p.report(indx=3)  # wrong
r.rows.to_pandas()
int(r.window[0]["index"])
GateFailed("no").result
"""


@pytest.mark.slow
def test_calls_are_checked(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    # The cache of `make types`, where there is one: the package itself is not what is checked here.
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    limit = sys.getrecursionlimit()
    try:
        out, err, _ = mypy.run([*options, "--no-error-summary", str(file)])
    finally:
        sys.setrecursionlimit(limit)  # mypy raises it, and tests of deeply nested values rest on it
    assert err == ""
    found = {int(line) for line in re.findall(r"calls\.py:(\d+): error", out)}
    wrong = {n for n, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, out
