"""Inputs that have the structure of what is read and any values in it, by Hypothesis: answers or errors in one line.

`test_mutants` damages good inputs; here nothing was ever good. What Hypothesis finds it makes as small as it can.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ask_mutant import Outcome, ask_profile
from hypothesis import given, settings
from hypothesis import strategies as st
from mutate_small import toml

from stepscope.capture import manifest
from stepscope.compare.gate import parse_limits
from stepscope.model import declared, label_rules, taxonomy

_WHOLE = st.integers(-(2**63), 2**63 - 1)
_PLAIN = st.one_of(
    st.none(), st.booleans(), _WHOLE, st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=9)
)
_NEST = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
#: Times that follow each other, mostly: else every row is left out, and nothing is left to ask about.
_TIME = st.integers(0, 10**6) | _WHOLE

_KEYS = {
    "labels": ("extends", "anchor", "step", "chunk", "stage", "steps", "purpose", "micro_batch", "first_pass"),
    "limits": ("limits",),
    "model": ("name", "layers", "width", "heads", "vocabulary", "gated", "experts"),
    "taxonomy": ("comm", "family", "tensor_core", "helper"),
}
_READERS: dict[str, Callable[[Path], object]] = {
    "labels": label_rules.load,
    "limits": lambda path: parse_limits(path, ()),
    "model": lambda path: declared.load(str(path)),
    "taxonomy": taxonomy.load,
}


def _tried(question: Callable[[Outcome, Path], object]) -> None:
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        question(outcome, Path(folder))
    assert not outcome.failures


@pytest.mark.parametrize("kind", _READERS)
@given(data=st.data())
@settings(max_examples=40)
def test_toml(kind: str, data: st.DataObject) -> None:
    rule = st.dictionaries(
        st.sampled_from(("pattern", "library", "name", "range", "purpose", "uses", "axis")), _NEST, max_size=3
    )
    content = data.draw(
        st.dictionaries(st.sampled_from(_KEYS[kind]), _NEST | rule | st.lists(rule, max_size=2), max_size=4)
    )

    def ask(outcome: Outcome, folder: Path) -> None:
        path = folder / "x.toml"
        path.write_text(toml(content), "utf-8", errors="surrogatepass")
        outcome.ask(kind, lambda: _READERS[kind](path) and None)

    _tried(ask)


@given(st.fixed_dictionaries({"schema": st.just(manifest.SCHEMA)}, optional={"scenario": _NEST, "captured": _NEST}))
@settings(max_examples=40)
def test_manifests(content: dict[str, Any]) -> None:
    def ask(outcome: Outcome, folder: Path) -> None:
        (folder / manifest.FILE).write_text(json.dumps(content), "utf-8")
        outcome.ask("manifest", lambda: manifest.read(folder) and None)

    _tried(ask)


_RECORD = st.dictionaries(
    st.sampled_from(
        ("k", "rank", "role", "unit", "tA0", "tA1_ms", "tB0", "tB1", "tEmit_us", "tSend", "block", "ms", "tokens")
    ),
    st.integers(0, 9) | st.sampled_from(("ms", "us", "leader")) | _PLAIN,
    max_size=6,
)


@given(st.lists(_RECORD, min_size=1, max_size=6))
@settings(max_examples=40)
def test_logs_of_items(records: list[dict[str, Any]]) -> None:
    def ask(outcome: Outcome, folder: Path) -> None:
        path = folder / "x.jsonl"
        path.write_text(
            "".join(json.dumps(record) + "\n" for record in [{"k": 0, "rank": 0, "tA0": 1}, *records]), "utf-8"
        )
        ask_profile(outcome, (path,), [("pipeline", {}), ("info", {})])

    _tried(ask)


_EVENT = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(("X", "i", "M", "s", "f", "B", "C")),
        "cat": st.sampled_from(("kernel", "cuda_runtime", "gpu_memcpy", "user_annotation", "cpu_op", "ac2g")),
        "name": st.sampled_from(("gemm", "ncclDevKernel_AllReduce", "cudaLaunchKernel", "step 0", "process_name"))
        | _PLAIN,
    },
    optional={
        "ts": _TIME | _PLAIN,
        "dur": st.integers(0, 1000) | _PLAIN,
        "pid": st.integers(0, 2) | _PLAIN,
        "tid": st.integers(0, 2) | _PLAIN,
        "args": st.dictionaries(
            st.sampled_from(("correlation", "stream", "device", "External id", "bytes")), _NEST, max_size=3
        )
        | _PLAIN,
    },
)


@given(st.lists(_EVENT, min_size=1, max_size=8), st.sampled_from(("breakdown", "diagnose", "launches", "timeline")))
@settings(max_examples=30)
def test_events_of_torch(events: list[dict[str, Any]], name: str) -> None:
    def ask(outcome: Outcome, folder: Path) -> None:
        path = folder / "x.pt.trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")
        ask_profile(outcome, (path,), [("info", {}), (name, {})])

    _tried(ask)


_KERNEL = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName")
_CALL = ("start", "end", "globalTid", "correlationId", "nameId")
_RANGE = ("start", "end", "globalTid", "eventType", "text")
_CELL = st.integers(0, 3) | st.integers(0, 10**6) | _PLAIN


@given(*(st.lists(st.tuples(*[_CELL] * len(table)), max_size=4) for table in (_KERNEL, _CALL, _RANGE)))
@settings(max_examples=30)
def test_rows_of_nsys(kernels: list[Any], calls: list[Any], ranges: list[Any]) -> None:
    def ask(outcome: Outcome, folder: Path) -> None:
        path = folder / "x.sqlite"
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE StringIds (id, value)")
            db.executemany(
                "INSERT INTO StringIds VALUES (?, ?)", enumerate(("gemm", "ncclDevKernel", "cudaLaunchKernel"))
            )
            for name, columns, rows in (
                ("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, kernels),
                ("CUPTI_ACTIVITY_KIND_RUNTIME", _CALL, calls),
                ("NVTX_EVENTS", _RANGE, ranges),
            ):
                db.execute(f"CREATE TABLE {name} ({', '.join(map(repr, columns))})")
                db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
            db.commit()
        ask_profile(outcome, (path,), [("breakdown", {}), ("diagnose", {})])

    _tried(ask)
