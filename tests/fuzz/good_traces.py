"""Every undamaged trace at hand: those of tests/data, unpacked, and those of ../shared."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
DATA = _TESTS / "data"
SHARED = _TESTS.parents[1] / "shared"
_ENDINGS = (".sqlite", ".json", ".json.gz", ".sqlite.gz", ".pickle.gz", ".pickle", ".ncu-rep", ".pftrace", ".csv")
_NOT_TRACES = ("manifest.json", "baseline.json", "host.json", "truth.json")
#: Folders of ../shared whose files are as a profiler wrote them; `traps` are undamaged, too, and odd.
_FOLDERS = ("traces", "judged", "traps")
#: Larger files are left to the benchmarks.
_MOST_BYTES = 24 << 20


def packed() -> list[Path]:
    """Files of tests/data that hold traces, as they are committed."""
    return sorted(p for p in DATA.rglob("*") if p.name.endswith((".sqlite.xz", ".tar.xz", *_ENDINGS)) and _wanted(p))


def shared() -> list[Path]:
    """Traces of ../shared, where there is such a folder."""
    found = [p for folder in _FOLDERS for p in (SHARED / folder).rglob("*") if p.is_file()]
    return sorted(p for p in found if p.name.endswith(_ENDINGS) and _wanted(p))


def _wanted(path: Path) -> bool:
    golden = "golden" in path.parts or "wants" in path.parts
    return not golden and not path.name.endswith(_NOT_TRACES) and path.stat().st_size < _MOST_BYTES


def unpacked(path: Path, folder: Path) -> tuple[Path, ...]:
    """The files of one trace, ready to be opened, all in `folder`: no question changes what others read."""
    if path.name.endswith(".sqlite.xz"):
        plain = folder / path.name.removesuffix(".xz")
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        return (plain,)
    if path.name.endswith((".sqlite.gz", ".pickle.gz")):
        plain = folder / path.name.removesuffix(".gz")
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        return (plain,)
    if path.name.endswith(".tar.xz"):
        with tarfile.open(path) as archive:
            archive.extractall(folder / "capture", filter="data")
        inside = list((folder / "capture").iterdir())  # some are packed with their folder
        return (inside[0] if len(inside) == 1 and inside[0].is_dir() else folder / "capture",)
    return (Path(shutil.copy(path, folder)),)
