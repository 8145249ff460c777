"""torch.profiler's own .pftrace against the JSON of the same events, both written by torch 2.15 (see data/pftrace)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from exports import DATA, job
from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.export import wire as writing
from stepscope.model.schema import TABLES
from stepscope.sources.detect import kind_of
from stepscope.sources.pftrace.trace import Events, slices
from stepscope.sources.pftrace.wire import Buffer, varints
from torch_pftrace import pftrace

TRACES = DATA / "pftrace"


def _tables(path: Path) -> dict[str, pl.DataFrame]:
    profile = api.open(path, cache=False)
    tables = {}
    for name in TABLES:
        if profile.has(name):
            frame = profile.table(name, detail=True)
            texts = [c for c in TABLES[name].name_ids() if c in frame.columns]
            tables[name] = frame.with_columns(profile.names.gather(frame[c]).alias(c) for c in texts)
    return tables


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_it_reads_as_the_json_does(name):
    found, wanted = _tables(TRACES / f"{name}.pftrace"), _tables(TRACES / f"{name}.json.gz")
    assert set(found) == set(wanted) >= ({"host", "ranges"} if name == "cpu" else {"ops", "calls", "syncs", "comms"})
    for table, frame in wanted.items():
        # The JSON cuts the cycles, which it derives, to whole ones, and alone says what was copied where; it has no
        # numbers of its own for nodes of graphs.
        copied = {"op_id", "name", "copy_kind", "src_kind", "dst_kind"}
        unlike = {"counters": {"value"}, "ops": copied, "dependencies": {"op_id", "after_id"}}.get(table, set())
        different = [c for c in frame.columns if c not in unlike and not frame[c].equals(found[table][c])]
        assert not different, (table, different)


def test_sampled_counters_are_read():
    counters = _tables(TRACES / "gpu.pftrace")["counters"]
    samples = counters.filter(pl.col("name") == "SM Active (%)")
    assert samples["value"].to_list() == [10.5, 20.0, 99.0] and samples["device"].to_list() == [0, 0, 0]
    assert counters.filter(pl.col("name") == "Power (W)")["value"].to_list() == [350.0, 360.0]


def test_graph_nodes_are_read():
    ops = _tables(TRACES / "gpu.pftrace")["ops"].filter(pl.col("graph_node").is_not_null())
    assert ops["name"].to_list() == ["first", "second", "third"] and ops["graph_node"].to_list() == [1, 2, 3]


def test_graph_dependencies_are_read(capsys):
    """As `record.py` beside the trace has them: the second node after the first, the third after the second."""
    tables = _tables(TRACES / "gpu.pftrace")
    name = dict(zip(tables["ops"]["op_id"], tables["ops"]["name"], strict=True))
    told = tables["dependencies"]
    pairs = [(name[op], name[after], kind) for op, after, kind in told.select("op_id", "after_id", "kind").iter_rows()]
    assert pairs == [("second", "first", "graph"), ("third", "second", "graph")]
    assert run(["info", str(TRACES / "gpu.pftrace"), "--no-cache"]) == 0
    assert "dependencies 2" in capsys.readouterr().out


def test_nodes_without_work_pass_their_dependencies_on(tmp_path):
    """d waits for an event recorded behind a callback of the host, which waits for a and b; c for nothing that ran."""

    def event(cat: str, name: str, at: int, node: int) -> dict[str, object]:
        args = {"device": 0, "stream": 7, "correlation": 5, "graph node id": node}
        return {"cat": cat, "name": name, "ts": at, "dur": 1, "pid": 0, "tid": 7, "args": args}

    kinds = {"a": "kernel", "b": "kernel", "host": "graph_host_node", "event": "graph_event_node"}
    events = [event(k, n, 10 * i, i + 1) for i, (n, k) in enumerate((kinds | {"c": "kernel", "d": "kernel"}).items())]
    path = tmp_path / "x.pftrace"
    path.write_bytes(pftrace(0, events, {2: [0, 1], 3: [2], 4: [99], 5: [3, 0]}))
    tables = _tables(path)
    name = dict(zip(tables["ops"]["op_id"], tables["ops"]["name"], strict=True))
    told = tables["dependencies"].select("op_id", "after_id").rows()
    assert sorted((name[op], name[after]) for op, after in told) == [("d", "a"), ("d", "b")]


def test_it_may_be_unpacked_and_called_anything(tmp_path):
    path = tmp_path / "trace.bin"
    path.write_bytes(gzip.decompress((TRACES / "gpu.pftrace").read_bytes()))
    assert kind_of(path) == "pftrace"
    assert api.open(path, cache=False).ops.height == api.open(TRACES / "gpu.pftrace", cache=False).ops.height


def test_json_under_that_name_is_json(tmp_path):
    """Without its CUPTI backend torch writes JSON, whatever the file is called."""
    path = tmp_path / "trace.pftrace"
    path.write_bytes(gzip.decompress((TRACES / "cpu.json.gz").read_bytes()))
    assert kind_of(path) == "kineto"


def test_a_text_that_begins_with_a_line_break_is_no_trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(b'\n{"traceEvents": []}')
    assert kind_of(path) == "kineto"


@pytest.mark.parametrize("keep", [40, 1000, 20_000])
def test_a_file_that_is_cut_off_is_refused(keep, tmp_path, capsys):
    whole = gzip.decompress((TRACES / "gpu.pftrace").read_bytes())
    path = tmp_path / "cut.pftrace"
    path.write_bytes(whole[:keep])
    assert run(["info", str(path), "--no-cache"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cut.pftrace" in said


def test_several_traces_in_one_file_are_refused(tmp_path):
    path = tmp_path / "two.pftrace"
    path.write_bytes((TRACES / "cpu.pftrace").read_bytes() * 2)
    with pytest.raises(BadInput, match="several traces"):
        api.open(path, cache=False).ranges  # noqa: B018


def test_a_trace_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.pftrace"
    path.write_bytes(b"\x0a\x04\x40\x05\x50\x01" * 2)
    with pytest.raises(BadInput, match="neither torch"):
        api.open(path, cache=False).ranks  # noqa: B018


def test_an_export_of_a_newer_version_is_refused(tmp_path):
    profile = api.open(job(tmp_path / "job", steps=1), cache=False)
    profile.export(tmp_path / "out.pftrace", findings=False)
    data = gzip.decompress((tmp_path / "out.pftrace").read_bytes())
    (tmp_path / "out.pftrace").write_bytes(data.replace(b'"version":1', b'"version":9', 1))
    with pytest.raises(BadInput, match="newer stepscope"):
        api.open(tmp_path / "out.pftrace", cache=False)


def test_numbers_of_all_lengths():
    values = [0, 1, 127, 128, (1 << 56) - 1, 1 << 56, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, *(3**k for k in range(40))]
    data = b"".join(map(writing.varint, values))
    at = np.cumsum([0, *(len(writing.varint(v)) for v in values)])
    found, behind = varints(Buffer(data), at[:-1])
    assert found.tolist() == values and behind.tolist() == at[1:].tolist()


def test_slices_sorted_by_time_pair_on_the_stack():
    """Some tool sorted the file: outer and inner slices, one behind the other, and one that never ends."""
    moments = [(1, 0, 7), (1, 2, 7), (2, 5, 7), (1, 5, 7), (2, 8, 7), (2, 10, 7), (1, 0, 9), (2, 3, 9), (1, 4, 9)]
    kind, time, track = (np.array(column, dtype=np.int64) for column in zip(*moments, strict=True))
    none = np.zeros(len(kind), np.int64)
    begin, end = slices(Events(time, kind, track, none, none, none.astype(float)))
    spans = sorted(zip(track[begin].tolist(), time[begin].tolist(), time[end].tolist(), strict=True))
    assert spans == [(7, 0, 10), (7, 2, 5), (7, 5, 8), (9, 0, 3)]


def test_the_header_of_an_export_is_plain_json(tmp_path):
    profile = api.open(job(tmp_path / "job", steps=1), cache=False)
    profile.export(tmp_path / "out.pftrace", findings=False)
    data = gzip.decompress((tmp_path / "out.pftrace").read_bytes())
    start = data.index(b'{"tables"')
    header, _ = json.JSONDecoder().raw_decode(data[start : start + 20_000].decode(errors="replace"))
    assert [p["rank"] for p in header["processes"]] == profile.rank_ids()


@pytest.mark.parametrize("suffix", ["json.gz", "pftrace"])
def test_graphs_of_two_gpus_are_read_whole(suffix):
    """As `record_graphs.py` beside the traces has them: edges, notes, and samples of each GPU."""
    tables = _tables(TRACES / f"graphs.{suffix}")
    ops = tables["ops"]
    noted = ops.filter(pl.col("graph_node").is_not_null() & (pl.col("correlation") == 50)).sort("graph_node")
    assert noted["graph_node"].to_list() == [1, 2, 3, 6]
    assert noted["annotation"].to_list() == ["layers.0.mlp", "layers.1.attention", None, "layers.1.attention"]
    assert noted["annotation_phase"].to_list() == [None, None, None, "backward"]
    assert [s and s.splitlines()[0] for s in noted["annotation_stack"]] == [
        "model.py:31:forward",
        "model.py:44:forward",
        None,
        None,
    ]
    # An event and a callback lie between: 6 came after 2 and 3, in each replay by itself.
    of_rank = tables["dependencies"].filter(pl.col("rank") == 0)
    who = {i: (name, c) for i, name, c in ops.drop_nulls("op_id").select("op_id", "name", "correlation").iter_rows()}
    pairs = sorted((who[a], who[b]) for a, b in of_rank.select("op_id", "after_id").iter_rows())
    assert pairs == sorted(
        ((f"node{a}", c), (f"node{b}", c)) for c in (50, 51) for a, b in ((2, 1), (3, 1), (6, 2), (6, 3))
    )
    clock = tables["counters"].filter(pl.col("name") == "SM Clock (MHz)").sort("device", "start_ns")
    assert clock["rank"].to_list() == clock["device"].to_list() == [0] * 10 + [1] * 10
    assert clock["value"].to_list() == [1980.0] * 5 + [1200.0] * 5 + [1755.0] * 10
    sampled = tables["counters"].group_by("name", "device").len().sort("name", "device").rows()
    assert (
        ("Power (W)", 0, 10) in sampled and ("HBM Read (%)", 1, 10) in sampled and ("SM Active (%)", 1, 10) in sampled
    )


def test_the_json_says_what_was_copied():
    """In arguments, as torch's CUPTI backend writes it: its name is `Memcpy` alone. The .pftrace does not have it."""
    copies = {
        s: _tables(TRACES / f"graphs.{s}")["ops"].filter(pl.col("kind") == "memcpy") for s in ("json.gz", "pftrace")
    }
    columns = ["copy_kind", "src_kind", "dst_kind"]
    assert copies["json.gz"].select(columns).row(0) == ("HtoD", "pinned", "device")
    assert copies["pftrace"].select(columns).row(0) == ("unknown", "unknown", "unknown")


def test_arrows_that_could_be_of_several_nodes_are_left_out(tmp_path):
    """Two nodes of one replay begin together on one lane: nothing says which of them an arrow means."""

    def node(at: float, dur: float, number: int, lane: int) -> dict[str, object]:
        args = {"device": 0, "stream": lane, "correlation": 5, "graph id": 1, "graph node id": number}
        return {
            "ph": "X",
            "cat": "kernel",
            "name": f"n{number}",
            "ts": at,
            "dur": dur,
            "pid": 0,
            "tid": lane,
            "args": args,
        }

    def arrow(number: int, ends: tuple[tuple[float, int], tuple[float, int]]) -> list[dict[str, object]]:
        both = zip("sf", ends, strict=True)
        return [{"ph": p, "id": (1 << 40) + number, "pid": 0, "tid": t, "ts": at, "cat": "ac2g"} for p, (at, t) in both]

    events = [node(0.0, 1.0, 1, 7), node(2.0, 1.0, 2, 8), node(2.0, 3.0, 3, 8), node(6.0, 1.0, 4, 9)]
    events += arrow(0, ((1.0, 7), (2.0, 8))) + arrow(1, ((3.0, 8), (6.0, 9))) + arrow(2, ((99.0, 8), (6.0, 9)))
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    tables = _tables(path)
    name = dict(tables["ops"].select("op_id", "name").iter_rows())
    told = [(name[a], name[b]) for a, b in tables["dependencies"].select("op_id", "after_id").iter_rows()]
    assert told == [("n4", "n2")]
