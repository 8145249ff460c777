"""Files that are no valid trace are refused in one line that names file, place and cause; small flaws are mended."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from kineto_files import event, kernel, rows, write

from stepscope.errors import BadInput
from stepscope.model.profile import Profile
from stepscope.sources.detect import kind_of
from stepscope.sources.kineto import looks_like_kineto, open_kineto
from stepscope.sources.open import open_sources

WHOLE = json.dumps({"schemaVersion": 1, "traceEvents": [kernel("a", 1), kernel("b", 3)], "traceName": "t"})


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as error:
        open_kineto(path).processes()
    text = str(error.value)
    assert str(path) in text and "\n" not in text
    return text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WHOLE[:100], "ends in the middle of an event at byte 100"),
        (WHOLE[: WHOLE.index("}, {") + 1], "ends before the list of events does"),
        (WHOLE[:-1], "ends before its closing brace"),
        (WHOLE[:30], "ends in the middle"),
        (WHOLE + "garbage", f"has characters after its end at byte {len(WHOLE)}"),
        (json.dumps([kernel("a", 1)]) + "]", "has characters after its end"),
        (WHOLE.replace('"name": "b"', '"name": b'), "invalid character at byte"),
        ("{\n  {\n", "object keys must be strings at byte 4"),
        ("hello", "it is not JSON"),
        ('{"a": 1}', "without a `traceEvents` list"),
        ('{"traceEvents": 5}', "without a `traceEvents` list"),
    ],
)
def test_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    assert says in refused(path)


def test_empty_missing_and_cut_gzip(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    assert "cannot be read" in refused(path)
    path.write_bytes(b"")
    assert "is empty" in refused(path)
    packed = gzip.compress(WHOLE.encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert "gzip data ends in the middle" in refused(path)
    path.write_bytes(packed[:20] + b"\xff" * 40)
    assert "gzip data is damaged" in refused(path)


def test_gzip_of_several_members_and_padding(tmp_path: Path) -> None:
    path = tmp_path / "no-gz-in-the-name.json"
    half = len(WHOLE) // 2
    path.write_bytes(gzip.compress(WHOLE[:half].encode()) + gzip.compress(WHOLE[half:].encode()) + b"\0" * 100)
    assert open_kineto(path).read("ops").frame.height == 2


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "inf", "-nan"])
def test_numbers_that_are_none(tmp_path: Path, value: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(WHOLE.replace('"stream": 7', f'"stream": 7, "memory bandwidth (GB/s)": {value}, "x": "NaN, inf"'))
    found = open_kineto(path)
    assert found.read("ops").frame.height == 2
    assert "mended" in found.quality.notes[0]


@pytest.mark.parametrize(
    ("name", "read_as"),
    [(b"a\tb\n", "a\tb\n"), (b"C:\\Users\\x", "C:\\Users\\x"), (b"a\xffb", "a\ufffdb"), (b"ok\\n\\u0041", "ok\nA")],
)
def test_names_with_raw_bytes(tmp_path: Path, name: bytes, read_as: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(WHOLE.encode().replace(b'"name": "b"', b'"name": "' + name + b'"'))
    assert rows(open_kineto(path), "ops")[1]["name"] == read_as


def test_trailing_comma_and_unclosed_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[" + json.dumps(kernel("a", 1)) + ",\n]")
    assert open_kineto(path).read("ops").frame.height == 1
    path.write_text("[\n" + json.dumps(kernel("a", 1)))
    found = open_kineto(path)
    assert found.read("ops").frame.height == 1
    assert "not closed" in found.quality.notes[0]


def test_fields_of_unexpected_types(tmp_path: Path) -> None:
    events = [
        kernel("k", 1, correlation="12", grid=[1.0, 2, 3], bytes=math.pi),
        {"ph": "X", "cat": "cpu_op", "name": None, "ts": "5.25", "dur": "1", "pid": "3", "tid": "9", "args": "none"},
        kernel("k", 9, device=None, stream=None),
        5,
    ]
    found = open_kineto(write(tmp_path, events))  # type: ignore[arg-type]
    first, last = rows(found, "ops")
    assert (first["correlation"], last["device"], last["stream"]) == (12, 0, 7)
    (op,) = rows(found, "host")
    assert (op["start_ns"], op["end_ns"], op["tid"], op["name"]) == (5250, 6250, 9, "")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e5000000"])
def test_numbers_that_no_float_holds(tmp_path: Path, number: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(WHOLE.replace('"stream": 7', f'"stream": 7, "correlation": {number}, "bytes": 1e300', 1))
    found = open_kineto(path)
    assert [row["stream"] for row in rows(found, "ops")] == [7, 7]
    assert "mended" in found.quality.notes[0]


def test_integers_of_any_size(tmp_path: Path) -> None:
    found = open_kineto(
        write(tmp_path, [kernel("a", 1, correlation=10**400, bytes=2**63), kernel("b", 3, stream=2**40)])
    )
    first, last = rows(found, "ops")
    assert (first["correlation"], first["stream"]) == (None, 7)
    assert last["stream"] == 7  # that of the event's thread: the argument says nothing


@pytest.mark.parametrize("where", ['"stream": 7', '"schemaVersion": 1'])
def test_values_nested_too_deeply(tmp_path: Path, where: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(WHOLE.replace(where, f'{where}, "x": {"[" * 5000}{"]" * 5000}', 1))
    assert "nested too deeply" in refused(path)
    assert kind_of(path) == "kineto"


def test_events_without_a_duration_are_left_out_and_counted(tmp_path: Path) -> None:
    """They say that something ran, not for how long: zero would be a figure."""
    endless = [{k: v for k, v in kernel("b", at).items() if k != "dur"} for at in (3, 5)]
    sample = {"ph": "C", "name": "memory", "ts": 4, "pid": 7, "args": {"value": 5}}
    found = open_kineto(write(tmp_path, [kernel("a", 1), *endless, sample]))
    assert [row["name"] for row in rows(found, "ops")] == ["a"]
    assert found.read("counters").frame.height == 1
    assert "2 events without a duration left out" in found.quality.notes


def test_a_trace_without_any_duration_is_refused(tmp_path: Path) -> None:
    endless = [{k: v for k, v in kernel("b", at).items() if k != "dur"} for at in (3, 5)]
    with pytest.raises(BadInput, match="none of 2 events of a GPU or a host has a duration; record it again"):
        open_kineto(write(tmp_path, endless)).processes()


def test_calls_without_a_thread(tmp_path: Path) -> None:
    events = [event("cuda_runtime", "cudaLaunchKernel", 1, tid=None), event("cuda_runtime", "cudaFree", 3)]
    profile = Profile(open_sources(write(tmp_path, events)))
    assert profile.calls["tid"].to_list() == [-1, 7]
    assert "calls: 1 row without tid: treated as -1" in profile.notes


def test_a_trace_without_events(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"json: a trace without an event of a GPU or a host"):
        open_kineto(write(tmp_path, [])).processes()


def test_sniffing(tmp_path: Path) -> None:
    assert looks_like_kineto(write(tmp_path, [kernel("a", 1)]))
    assert looks_like_kineto(write(tmp_path, [kernel("a", 1)], name="t.json.gz"))
    other = tmp_path / "other.json"
    other.write_text('{"rows": []}')
    assert not looks_like_kineto(other)
    other.write_bytes(b"SQLite format 3\0")
    assert not looks_like_kineto(other)
    assert not looks_like_kineto(tmp_path / "absent.json")
    assert not looks_like_kineto(tmp_path)


@pytest.mark.parametrize("begins", ['{"a": "', '{"traceEvents": [{"name": "', '{"traceEvents": [], "a": "'])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str) -> None:
    """40 MB of one string, in 40 kB of gzip: no more of it is held than an event may have."""
    monkeypatch.setattr("stepscope.sources.kineto.chunks._MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.pt.trace.json.gz"
    path.write_bytes(gzip.compress(begins.encode() + b"x" * (40 << 20)))
    assert "has no end of an event or of its metadata" in refused(path)
