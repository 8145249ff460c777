"""However a trace is cut into chunks, its events are those that `json` reads."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.errors import BadInput
from stepscope.sources.kineto.bytestream import ByteStream
from stepscope.sources.kineto.chunks import EventChunks

#: Texts that look like the boundary of two events, or like the list of them.
NASTY = st.text(alphabet='},{"[]: \\x\n', max_size=12) | st.sampled_from(['},{"', '"traceEvents": [', "}\n,\n{", "]}"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-(2**40), 2**40) | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"name": NASTY, "ts": st.integers(0, 10**9)}, optional={"args": st.dictionaries(NASTY, VALUES)}
    )
)


def read(text: str | bytes, chunk_bytes: int) -> tuple[list[tuple[str, float]], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with ByteStream(path) as stream:
            chunks = EventChunks(stream, chunk_bytes)
            events = [(e.name, e.ts) for found, _ in chunks for e in found]
    return events, chunks.metadata


@given(
    events=EVENTS,
    head=st.dictionaries(NASTY, VALUES, max_size=2),
    tail=st.dictionaries(NASTY, VALUES, max_size=2),
    chunk_bytes=st.integers(1, 80),
    indent=st.sampled_from([None, 0, 2]),
)
@pytest.mark.slow
def test_any_trace_in_any_chunks(
    events: list[dict[str, Any]], head: dict[str, Any], tail: dict[str, Any], chunk_bytes: int, indent: int | None
) -> None:
    text = json.dumps({**head, "traceEvents": events, **tail}, indent=indent)
    expected = json.loads(text)
    found, metadata = read(text, chunk_bytes)
    assert found == [(e["name"], e["ts"]) for e in expected.pop("traceEvents")]
    assert metadata == {**expected, "traceEvents": None}


@given(events=EVENTS, chunk_bytes=st.integers(1, 80))
def test_a_bare_list_of_events(events: list[dict[str, Any]], chunk_bytes: int) -> None:
    found, _ = read(json.dumps(events), chunk_bytes)
    assert found == [(e["name"], e["ts"]) for e in events]


@given(events=EVENTS.filter(len), chunk_bytes=st.integers(1, 80), data=st.data())
@pytest.mark.slow
def test_a_cut_off_trace_is_never_taken_for_a_whole_one(
    events: list[dict[str, Any]], chunk_bytes: int, data: st.DataObject
) -> None:
    text = json.dumps({"a": 1, "traceEvents": events, "b": "2"})
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(BadInput) as error:
        read(text[:cut], chunk_bytes)
    assert "\n" not in str(error.value)


def test_boundaries_inside_a_string_longer_than_many_chunks() -> None:
    events = [{"name": '},{"' * 5000, "ts": 1}, {"name": "b", "ts": 2}]
    assert read(json.dumps(events), 100)[0] == [('},{"' * 5000, 1), ("b", 2)]
