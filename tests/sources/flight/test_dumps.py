"""Dumps of the flight recorder: pickles and JSON alike, and hostile ones refused in one line, with nothing run."""

from __future__ import annotations

import os
import pickle
from random import Random

import msgspec
import numpy as np
import pytest

from stepscope.errors import BadInput, CannotAnswer, StepscopeError
from stepscope.simulate.hang.faults import parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.pickled import pickled
from stepscope.simulate.hang.run import as_json, simulate_hang
from stepscope.sources.flight.folder import open_flight, rank_of
from stepscope.sources.flight.pickles import Reader
from stepscope.sources.flight.reading import read


@pytest.fixture(scope="module")
def dump():
    """The dump of one rank, with batches and both kinds of states."""
    return simulate_hang(HangJob(seed=3, pp=2, batched=True), parse("host:rank=1")).dumps()[0]


def as_rows(done):
    names = [done.groups[g] for g in done.columns["group"].tolist()]
    signatures = [done.signatures[s] for s in done.columns["signature"].tolist()]
    plain = [done.columns[c].tolist() for c in sorted(done.columns) if c not in ("group", "signature", "stack")]
    return list(zip(names, signatures, *plain, strict=True))


def test_every_cell_is_what_was_written(dump):
    done = read("dump", pickled(dump), 10_000)
    assert done.count == len(dump["entries"]) > 100
    states = {"scheduled": 0, "started": 1, "completed": 2}
    for n, entry in enumerate(dump["entries"]):
        row = {key: int(done.columns[key][n]) for key in done.columns}
        assert done.groups[row["group"]] == entry["process_group"]
        assert row["record_id"] == entry["record_id"] and row["state"] == states[entry["state"]]
        assert row["time_created_ns"] == entry["time_created_ns"]
        assert row["time_discovered_completed_ns"] == (entry["time_discovered_completed_ns"] or -1)
        assert row["p2p"] == entry["is_p2p"] and row["p2p_seq_id"] == entry["p2p_seq_id"]
        signature = done.signatures[row["signature"]]
        assert entry["profiling_name"].startswith(f"nccl:{signature.kind}")
        assert signature.elements_in == sum(size[0] for size in entry["input_sizes"])
        assert [f.line for f in done.stacks[row["stack"]]] == [f["line"] for f in entry["frames"]]


def test_all_ways_of_writing_a_dump_read_alike(dump):
    by_torch = as_rows(read("dump", pickled(dump), 10_000))
    plain = {**dump, "entries": [{**e, "frames": [dict(f) for f in e["frames"]]} for e in dump["entries"]]}
    assert as_rows(read("dump", pickle.dumps(plain, 2), 10_000)) == by_torch
    assert as_rows(read("dump", pickle.dumps(plain), 10_000)) == by_torch
    assert as_rows(read("dump", as_json(dump), 10_000)) == by_torch


def test_calls_of_one_layout_are_read_at_once(dump):
    reader = Reader("dump", pickled(dump))
    assert reader.count == len(dump["entries"])
    assert len(reader.slow) < reader.count / 4
    assert len(reader.slow) + sum(len(runs.rows()[0]) for runs in reader.runs) == reader.count


def test_bytes_that_look_like_a_call_are_not_taken_for_one(dump):
    """The beginning of a call inside of a number, and a call that is cut: the machine reads both, or refuses."""
    inside = int.from_bytes(b"}(h\x00}(h\x00", "little")
    entries = [{**e, "time_created_ns": inside} if n % 3 == 0 else e for n, e in enumerate(dump["entries"])]
    done = read("dump", pickled({**dump, "entries": entries}), 10_000)
    plain = [{**e, "frames": [dict(f) for f in e["frames"]]} for e in entries]
    assert as_rows(done) == as_rows(read("dump", pickle.dumps({**dump, "entries": plain}), 10_000))


def test_of_a_long_dump_the_end_and_what_is_open_is_kept(dump):
    whole, tail = (read("dump", pickled(dump), n) for n in (10_000, 20))
    kept = set(tail.columns["record_id"].tolist())
    open_ = whole.columns["record_id"][whole.columns["state"] != 2]
    assert set(open_.tolist()) <= kept and max(whole.columns["record_id"]) in kept
    assert len(kept) < whole.count == tail.count


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/stepscope-was-here",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    for n, data in enumerate(
        (pickle.dumps({"entries": [Evil()]}, 2), pickle.dumps({"entries": Evil(), "pg_config": {}}))
    ):
        (tmp_path / f"rank_{n}").write_bytes(data)
        with pytest.raises(BadInput, match="nothing was run") as error:
            read("dump", data, 100)
        assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="none of 2 dumps can be read"):
        open_flight(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02",
        b"\x80\x02}(",
        b"\x80\x02" + b"(" * 1000 + b".",
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of two billion entries
        b"\x80\x02X\xff\xff\xff\x7f.",  # a text of two gigabytes
        b"\x80\x02" + b")\x85" * 100_000 + b".",  # tuples in tuples
        b"\x80\x02]q\x00h\x00a.",
        pickle.dumps([1, 2, 3], 2),
        pickle.dumps({"a": 1}, 2),
        b'{"entries": ' + b"[" * 100_000,
        b'{"entries": [1]}',
    ],
)
def test_what_is_not_a_dump_is_refused_in_one_line(data):
    with pytest.raises(StepscopeError) as error:
        read("dump", data, 100)
    assert "\n" not in str(error.value) and "dump" in str(error.value)


def test_damaged_dumps_never_surprise(dump):
    random = Random(1)
    for data in (pickled(dump), as_json(dump)):
        for _ in range(150):
            broken = bytearray(data[: random.randrange(1, len(data))] if random.random() < 0.3 else data)
            for _ in range(random.randrange(1, 8)):
                broken[random.randrange(len(broken))] = random.randrange(256)
            try:
                done = read("dump", bytes(broken), 100)
            except BadInput as error:
                assert "\n" not in str(error)
            else:
                assert len({len(column) for column in done.columns.values()}) == 1


def test_dumps_of_another_job_and_of_an_earlier_run_are_left_out(tmp_path):
    simulate_hang(HangJob(seed=1), parse("host")).write(tmp_path)
    other = simulate_hang(HangJob(seed=1, dp=4), parse("host")).dumps()[9]
    (tmp_path / "nccl_trace_rank_9").write_bytes(pickled(other))
    old = simulate_hang(HangJob(seed=1), parse("host")).dumps()[7]
    for entry in old["entries"]:
        entry["time_created_ns"] -= 10**13
    (tmp_path / "nccl_trace_rank_7").write_bytes(pickled(old))
    flight = open_flight(tmp_path)
    assert 9 not in flight.ranks and 7 not in flight.ranks
    assert any("another job" in why for _, why in flight.refused)
    assert any("earlier run" in why for _, why in flight.refused)


def test_groups_of_one_name_are_apart_by_their_members(tmp_path):
    simulate_hang(HangJob(seed=1, shared_names=True), parse("healthy")).write(tmp_path)
    flight = open_flight(tmp_path)
    tensor = [g for g in flight.groups if g.purpose == "tp"]
    assert len({g.name for g in tensor}) == 1
    assert sorted(g.members for g in tensor) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_batch_is_as_far_as_the_call_that_closes_it(tmp_path):
    simulate_hang(HangJob(seed=1, batched=True), parse("healthy")).write(tmp_path)
    calls = open_flight(tmp_path).calls
    assert (calls.state[calls.p2p] == 2).mean() > 0.9
    assert not np.any((calls.state == 2) & (calls.completed_ns < 0))


def test_ranks_are_read_off_names():
    names = {"nccl_trace_rank_3": 3, "rank12.json": 12, "dump_7.pickle": 7, "comm_lib_trace_rank_0": 0, "dump": None}
    from pathlib import Path

    assert {name: rank_of(Path(name)) for name in names} == names


def test_no_dump_at_all(tmp_path):
    (tmp_path / "log.txt").write_text("hello\n")
    with pytest.raises(CannotAnswer, match="no dump"):
        open_flight(tmp_path)
    with pytest.raises(BadInput, match="no such file"):
        open_flight(tmp_path / "nowhere")


def test_versions_lack_keys_and_are_read(dump):
    for key in ("timeout_ms", "is_p2p", "pg_id", "retired", "frames", "input_dtypes"):
        old = {**dump, "entries": [{k: v for k, v in e.items() if k != key} for e in dump["entries"]]}
        assert read("dump", pickled(old), 10_000).count == len(dump["entries"])
    plain = msgspec.json.decode(as_json(dump))
    del plain["pg_status"]
    assert read("dump", msgspec.json.encode(plain), 10).status == {}
