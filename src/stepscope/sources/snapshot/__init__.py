"""Snapshots of PyTorch's CUDA allocator: the pickle that `torch.cuda.memory._dump_snapshot` writes, plain or gzip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.sources.snapshot.source import SnapshotSource

#: A snapshot's first key stands at its very front, whichever of them that is.
_FRONT = 256
_KEYS = (b"segments", b"device_traces", b"allocator_settings", b"external_annotations")


def open_snapshot(path: Path | str) -> SnapshotSource:
    """The snapshot as a source. Raises BadInput, when it is first read, where the file is not a valid one."""
    from stepscope.sources.snapshot.source import SnapshotSource

    return SnapshotSource(Path(path))


def looks_like_snapshot(head: bytes) -> bool:
    """Whether a file that begins so is a snapshot: a pickle (protocol 2 or later) of a dict with a snapshot's keys."""
    pickled = head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05"
    return pickled and any(key in head[:_FRONT] for key in _KEYS)
