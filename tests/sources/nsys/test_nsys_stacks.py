"""Call stacks: native chains by their number, Python's from the marks at the calls. As nsys 2025.3 writes both."""

from __future__ import annotations

import json

from nsys_files import KERNEL, NVTX, RUNTIME, call, kernel, range_, strings, texts, write

import stepscope
from stepscope.sources.nsys import open_sqlite


def payload(*frames: tuple[int, int, int]) -> str:
    body = [{"Function": f, "File": file, "Line": line} for f, file, line in frames]
    inner = {"Thread state ID": 1, "Thread state": "Running", "Frames count": len(body), "Frames": body}
    return json.dumps({"Python Backtrace on CUDA": inner}, separators=(",", ":"))


def mark(start: int, text: str | None, domain: int = 1) -> dict[str, object]:
    return range_(start, None, None, eventType=34, domainId=domain) | {"jsonText": text}


TEXTS = strings("gemm", "cudaLaunchKernel", "forward", "/me/net.py", "main", "at::_ops::mul::call", "/v/libtorch.so")
CHAIN = {"unresolved": None, "originalIP": 1}


def file(tmp_path, **more):
    where = payload((3, 4, 7), (5, 4, 20))
    tables = {
        "StringIds": TEXTS,
        KERNEL: [kernel(t, t + 5, correlationId=t) for t in (110, 210, 310)],
        RUNTIME: [
            call(100, 109, correlationId=110, callchainId=0),
            call(101, 108, correlationId=110, callchainId=None),  # what the runtime call enters: no stack of its own
            call(200, 209, correlationId=210, callchainId=1),
            call(300, 309, correlationId=310, callchainId=None),
        ],
        "CUDA_CALLCHAINS": [
            {"id": 0, "symbol": 2, "module": 7, "stackDepth": 0, **CHAIN},
            {"id": 0, "symbol": 6, "module": 7, "stackDepth": 1, **CHAIN},
            {"id": 1, "symbol": 6, "module": 7, "stackDepth": 0, **CHAIN},
        ],
        NVTX: [
            range_(-5, None, "Python Backtrace on CUDA", eventType=75, domainId=1) | {"jsonText": None},
            mark(100, where),
            mark(300, where),
            mark(200, "{", domain=1),
            mark(300, where, domain=3),
        ],
    }
    return write(tmp_path / "t.sqlite", {k: v for k, v in {**tables, **more}.items() if v})


def test_chains_and_marks_become_stacks(tmp_path):
    source = open_sqlite(file(tmp_path))
    assert "stacks" in source.tables()
    rows = texts(source, "stacks").sort("chain", "depth").to_dicts()
    native = [(r["chain"], r["depth"], r["name"], r["file"], r["line"]) for r in rows if r["chain"] >= 0]
    op = ("at::_ops::mul::call", "/v/libtorch.so", None)
    assert native == [(0, 0, "cudaLaunchKernel", "/v/libtorch.so", None), (0, 1, *op), (1, 0, *op)]
    python = [(r["depth"], r["name"], r["file"], r["line"]) for r in rows if r["chain"] < 0]
    assert python == [(0, "forward", "/me/net.py", 7), (1, "main", "/me/net.py", 20)]  # two calls, one stack
    calls = source.read("calls", "detail").frame
    assert calls["callchain"].to_list() == [0, None, 1, None]
    chains = calls["python_chain"].to_list()
    assert chains[0] == chains[3] is not None and chains[1] is None


def test_without_either_there_is_no_table(tmp_path):
    source = open_sqlite(file(tmp_path, CUDA_CALLCHAINS=(), **{NVTX: [range_(0, 9, "step 0") | {"jsonText": None}]}))
    assert "stacks" not in source.tables() and source.read("stacks").frame.height == 0
    assert source.read("calls", "detail").frame["python_chain"].null_count() == 4


def test_the_command_reads_them(tmp_path):
    found = stepscope.open(file(tmp_path), cache=False).source()
    assert [(r["function"], r["op"]) for r in found.rows.to_dicts()] == [
        ("(no frame)", "aten::mul"),
        ("/me/net.py(7): forward", "aten::mul"),
        ("/me/net.py(7): forward", None),
    ]
