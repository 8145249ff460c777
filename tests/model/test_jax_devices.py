"""One JAX process on two GPUs: a real capture on one, whose GPU rows are given to a second device of the same process.

No machine with two GPUs was at hand. What the second device does is what the first does, on streams, a context, calls
and correlation ids of its own, a moment later and half as long: so what each must be told is known from the capture.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope import api, questions

_PACKED = Path(__file__).resolve().parents[1] / "data" / "unmodified" / "jax_none.nsys.tar.xz"
_GPU = ("KERNEL", "MEMCPY", "MEMSET")
_IDS, _LATER, _THREAD = 1_000_000, 700, 9
#: Questions with rows of ranks. (A critical path goes through all of them; communication is in `test_devices.py`.)
_OF_RANKS = (
    *("breakdown", "compute", "concurrency", "idle", "info", "kernels", "launches", "run", "setup", "streams"),
    *("timeline", "window"),
)


def _second_device(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        for kind in _GPU:
            table = f"CUPTI_ACTIVITY_KIND_{kind}"
            columns = [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            other = {
                "start": f"start + {_LATER}",
                "end": f"start + {_LATER} + (end - start) / 2",
                "deviceId": "1",
                "contextId": "2",
                "streamId": "streamId + 100",
                "correlationId": f"correlationId + {_IDS}",
            }
            db.execute(f"INSERT INTO {table} SELECT {', '.join(other.get(c, c) for c in columns)} FROM {table}")
        calls = "CUPTI_ACTIVITY_KIND_RUNTIME"
        columns = [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{calls}')")]
        other = {"globalTid": f"globalTid + {_THREAD}", "correlationId": f"correlationId + {_IDS}"}
        other |= {c: f"{c} + {_LATER}" for c in ("start", "end")}
        db.execute(f"INSERT INTO {calls} SELECT {', '.join(other.get(c, c) for c in columns)} FROM {calls}")
        db.commit()


def _as_kineto(single: api.Profile, path: Path) -> None:
    """The same ops as Kineto writes them: a call and an op each, for both devices."""
    events: list[dict[str, Any]] = []
    ops = single.ops.sort("start_ns")
    names = single.names
    for number, op in enumerate(ops.iter_rows(named=True), 1):
        start, length = op["start_ns"], op["end_ns"] - op["start_ns"]
        category = {"kernel": "kernel", "memcpy": "gpu_memcpy"}.get(str(op["kind"]), "gpu_memset")
        for device, later, part in ((0, 0, 1), (1, _LATER, 2)):
            correlation = number + device * _IDS
            args = {"device": device, "stream": op["stream"] + 100 * device, "correlation": correlation}
            at = {"ts": (start + later) / 1000, "dur": length // part / 1000, "pid": device, "tid": args["stream"]}
            events.append({"ph": "X", "cat": category, "name": names[op["name"]], **at, "args": args})
            where = {"ts": (start + later) / 1000 - 5, "dur": 1, "pid": 4242, "tid": 4242 + _THREAD * device}
            call = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", **where}
            events.append({**call, "args": {"correlation": correlation}})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> api.Profile:
    folder = tmp_path_factory.mktemp("jax")
    with tarfile.open(_PACKED) as archive:
        archive.extractall(folder, filter="data")
    return api.open(next(folder.rglob("*.sqlite")), cache=False)


@pytest.fixture(scope="module", params=["nsys", "kineto"])
def double(
    request: pytest.FixtureRequest, single: api.Profile, tmp_path_factory: pytest.TempPathFactory
) -> api.Profile:
    folder = tmp_path_factory.mktemp("jax2")
    if request.param == "nsys":
        path = folder / "jax.sqlite"
        path.write_bytes(single.paths[0].read_bytes())
        _second_device(path)
    else:
        path = folder / "jax.pt.trace.json"
        _as_kineto(single, path)
    return api.open(path, cache=False)


def _busy(profile: api.Profile, rank: int) -> tuple[int, int]:
    ops = dict(profile.by_rank("ops"))[rank]
    return ops.height, int((ops["end_ns"] - ops["start_ns"]).sum())


def test_each_device_is_a_timeline(single: api.Profile, double: api.Profile) -> None:
    assert double.ranks.select("rank", "device").rows() == [(0, 0), (1, 1)]
    assert double.ranks["pid"].n_unique() == 1
    assert any(note.code == "several-gpus" for note in double.notes)
    count, busy = _busy(single, 0)
    assert _busy(double, 0) == (count, busy)
    halves = int(((single.ops["end_ns"] - single.ops["start_ns"]) // 2).sum())
    assert _busy(double, 1) == (count, halves)


def test_the_first_device_is_told_what_it_was_alone(single: api.Profile, double: api.Profile) -> None:
    """Time that a GPU is busy, and its kernels: nothing of the second is in them."""
    alone, beside = (api.analyse(p, "breakdown", whole=True, rank=0).rows for p in (single, double))
    parts = ["window_ns", "compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns"]
    assert beside.select(parts).rows() == alone.select(parts).rows()
    counts = [
        api.analyse(p, "kernels", whole=True, rank=0).rows.select("name", "n", "total_ns").sort("name").rows()
        for p in (single, double)
    ]
    assert counts[0] and counts[1] == counts[0]


@pytest.mark.parametrize("question", _OF_RANKS)
def test_what_is_said_of_a_device_alone_is_said_beside_the_other(question: str, double: api.Profile) -> None:
    window = {"whole": True} if questions.get(question).windowed else {}
    both = api.analyse(double, question, **window).rows
    for rank in (0, 1):
        one = api.analyse(double, question, rank=rank, **window).rows
        assert one.height and both.filter(pl.col("rank") == rank).rows() == one.rows()
