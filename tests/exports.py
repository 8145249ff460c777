"""Traces that are exported in tests, and a reader of protobuf that shares nothing with ours: slow, and plain to see."""

from __future__ import annotations

import gzip
import lzma
import struct
from collections.abc import Iterator
from pathlib import Path

from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

DATA = Path(__file__).parent / "data"
#: Captures of H200s that are committed.
H200 = {name: DATA / "h200" / name / "overlapped.sqlite.xz" for name in ("moe4", "payloads")} | {
    name: DATA / "h200" / "train" / f"{name}.sqlite.xz" for name in ("eager", "slow_dataloader")
}


def h200(name: str, folder: Path) -> Path:
    """A committed capture, unpacked."""
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress(H200[name].read_bytes()))
    return path


def job(folder: Path, *written: str, **shape: object) -> Path:
    """A simulated job of four ranks with a straggler, in the formats named."""
    settings = {"schedule": "1f1b", "pp": 2, "dp": 2, "ep": 1, "layers": 2, "micro_batches": 4, "steps": 3, "seed": 11}
    scenario = Scenario(**{"faults": ("straggler:rank=3,factor=1.5",), **settings, **shape})  # type: ignore[arg-type]
    simulate_to(scenario, folder, written or ("nsys",))
    (folder / "truth.json").unlink(missing_ok=True)
    return folder


Message = dict[int, list[int | bytes]]


def messages(path: Path) -> list[Message]:
    """The packets of a trace, each parsed one level deep."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return [parsed(p) for p in parsed(data)[1] if isinstance(p, bytes)]


def parsed(data: bytes) -> Message:
    """A message: values by the number of their field, in order."""
    found: Message = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def inner(message: Message, number: int) -> list[Message]:
    """The messages of a field."""
    return [parsed(value) for value in message.get(number, ()) if isinstance(value, bytes)]


def double(value: int | bytes) -> float:
    assert isinstance(value, int)
    return float(struct.unpack("<d", struct.pack("<Q", value))[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        elif kind == 2:
            length = varint()
            assert at + length <= len(data)
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            size = {1: 8, 5: 4}[kind]
            yield tag >> 3, int.from_bytes(data[at : at + size], "little")
            at += size
