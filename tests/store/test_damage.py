"""A cache that is damaged in any way is rebuilt, silently correct."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash
from stored import Open, assert_same, entries, everything, keys

from fake import Log
from stepscope.store import container


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_one_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def zero_block(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b'"meta"')
    data[at : at + 64] = bytes(64)
    path.write_bytes(data)


def foreign(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + random.Random(0).randbytes(4096))


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def delete(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [truncate, cut_one_byte, empty, zeros, zero_block, foreign, longer, delete, directory]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", ["source", "ops.core", "ops.detail"])
def test_damage_is_rebuilt(damage: object, part: str, reopen: Open, cache_dir: Path) -> None:
    whole = everything(reopen())
    (victim,) = [p for p in entries(cache_dir) if p.name.endswith(f".{part}.tbl")]
    assert callable(damage)
    damage(victim)
    assert_same(everything(reopen()), whole)
    assert_same(everything(reopen()), whole)


@pytest.mark.slow
def test_every_flipped_bit_is_found(reopen: Open, cache_dir: Path, log: Log) -> None:
    whole = everything(reopen())
    (victim,) = [p for p in entries(cache_dir) if p.name.endswith(".ops.core.tbl")]
    good = victim.read_bytes()
    for at in range(0, len(good), 7):
        flipped = bytearray(good)
        flipped[at] ^= 1 << (at % 8)
        victim.write_bytes(flipped)
        before = log.opened
        assert_same(everything(reopen()), whole)
        assert log.opened == before + 1
        assert victim.read_bytes() == good


def test_files_swapped_between_tables_and_profiles(reopen: Open, trace: Path, cache_dir: Path) -> None:
    whole = everything(reopen())
    other = trace.with_name("other.txt")
    other.write_text("1 2 foreign\n")
    everything(reopen(other))
    mine, theirs = (
        {p.name.split(".", 1)[1]: p for p in entries(cache_dir) if p.name.startswith(k)} for k in keys(cache_dir)
    )
    for name in mine:
        a, b = mine[name].read_bytes(), theirs[name].read_bytes()
        mine[name].write_bytes(b)
        theirs[name].write_bytes(a)
    assert_same(everything(reopen()), whole)
    shutil.copy(mine["ops.detail.tbl"], mine["ops.core.tbl"])
    assert_same(everything(reopen()), whole)


def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another header, with the right checksum: only somebody who knows the form can."""
    data = path.read_bytes()
    end = len(data) - container._TAIL.size
    length = container._TAIL.unpack_from(data, end)[0]
    header = json.loads(data[end - length : end])
    change(header)
    whole = data[: end - length] + json.dumps(header).encode()
    tail = container._TAIL.pack(len(whole) - end + length, xxhash.xxh3_128(whole).digest(), container._MAGIC)
    path.write_bytes(whole + tail)


FORGERIES: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("source", lambda h: h["meta"].pop("tables")),
    ("source", lambda h: h["meta"].update(tables=5)),
    ("source", lambda h: h["meta"].pop("info")),
    ("source", lambda h: h["meta"]["info"].update(capture_ns="long")),
    ("source", lambda h: h["meta"]["info"].update(facts=[1])),
    ("source", lambda h: h["frames"].pop("processes")),
    ("source", lambda h: h["frames"]["processes"].update(rows=1 << 60)),
    ("ops.core", lambda h: h["meta"].update(notes=5)),
    ("ops.core", lambda h: h["frames"].pop("frame")),
    ("ops.core", lambda h: h["frames"].pop("names")),
    ("ops.core", lambda h: h["frames"]["frame"]["columns"].pop()),
    ("ops.core", lambda h: h["frames"]["frame"]["columns"][1].update(kind="<f8")),
    ("ops.core", lambda h: h["frames"]["frame"]["columns"][1].update(at=1 << 40)),
    ("ops.core", lambda h: h["frames"]["frame"]["columns"][1].update(name="other")),
    ("ops.detail", lambda h: h["frames"]["frame"].update(rows=1)),
]


@pytest.mark.parametrize("number", range(len(FORGERIES)))
def test_what_is_not_of_the_form_is_read_afresh(number: int, reopen: Open, cache_dir: Path, log: Log) -> None:
    whole = everything(reopen())
    part, change = FORGERIES[number]
    (victim,) = [p for p in entries(cache_dir) if p.name.endswith(f".{part}.tbl")]
    forge(victim, change)  # type: ignore[arg-type]
    before = log.opened
    assert_same(everything(reopen()), whole)
    assert log.opened == before + 1
