"""Which files are dumps, of which rank, and which lie beside them; all of them read, by several processes where they
are many."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import closing, nullcontext
from glob import glob, has_magic
from pathlib import Path

import msgspec

from stepscope import progress
from stepscope.errors import BadInput, CannotAnswer, StepscopeError
from stepscope.files.pool import Died, Pool
from stepscope.model.flight import NONE, Flight
from stepscope.sources.flight import beside
from stepscope.sources.flight.merging import Found, merged
from stepscope.sources.flight.reading import Read, read, size_of

#: A file that `capture hang` writes beside dumps.
MANIFEST = "hang.json"
#: Calls that are kept of all dumps together, and of each at least: the rest is history that nobody asks for.
_KEPT, _TAIL = 8_000_000, 512
#: Bytes from which on more than one process reads.
_MANY = 64 << 20
#: Dumps that a process reads at a time.
_AT_ONCE = 16
_MOST_BYTES = 1 << 29
#: The name of the default group.
_EVERYBODY = "0"
#: A dump whose last call is so much older than the first of the others is left over from another run.
_STALE_NS = 600 * 10**9
_RANK = re.compile(r"(\d{1,7})(?:\.[A-Za-z_]\w*)*$")
_NAMED = re.compile(r"rank[_\-.]?(\d{1,7})", re.IGNORECASE)


def open_flight(*paths: str | Path) -> Flight:
    """The dumps that `paths` (files, folders, globs) are, and what lies beside them."""
    files = list(_files(paths))
    if not files:
        raise BadInput(f"{' '.join(map(str, paths)) or 'no path'}: no files", "name the folder with the dumps")
    dumps: list[Path] = []
    other: list[Path] = []
    for file in files:
        (dumps if is_dump(file) else other).append(file)
    if not dumps:
        raise CannotAnswer(
            f"{files[0] if len(files) == 1 else files[0].parent}: no dump of the flight recorder",
            "`stepscope capture hang` says how to get one from each rank",
        )
    manifest = _manifest(other)
    found, refused = _read_all(_ranked(dumps), manifest)
    if not found:
        raise (
            BadInput(refused[0][1], None)
            if len(refused) == 1
            else BadInput(
                f"none of {len(refused)} dumps can be read; the first: {refused[0][1]}", "collect the dumps again"
            )
        )
    flight = merged(_of_one_job(found, refused))
    flight.refused = refused
    flight.threads, flight.facts = beside.read(other, flight.world)
    return flight


def _files(paths: Iterable[str | Path]) -> Iterable[Path]:
    """Every file once, in one order whatever order they are named in."""
    seen: set[Path] = set()
    for path in map(str, paths):
        magic = has_magic(path) and not Path(path).exists()
        matches = sorted(glob(path, recursive=True)) if magic else [path]  # noqa: PTH207 (takes absolute ones)
        if not matches:
            raise BadInput(f"{path}: no such file", "name the folder with the dumps")
        for match in map(Path, matches):
            if not match.exists():
                raise BadInput(f"{match}: no such file", "name the folder with the dumps")
            seen |= {p for p in match.rglob("*") if p.is_file()} if match.is_dir() else {match}
    return sorted(seen, key=str)


def is_dump(path: Path) -> bool:
    """By its beginning: a pickle, or JSON that names what a dump has."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return True
    if head.lstrip()[:1] != b"{" or path.name == MANIFEST:
        return False
    return any(key in head for key in (b'"entries"', b'"pg_config"', b'"comm_lib_version"', b'"nccl_version"'))


def rank_of(path: Path) -> int | None:
    """The rank that a file's name says: `nccl_trace_rank_3`, `rank3.json`, `dump_3`."""
    named = _NAMED.findall(path.name)
    if named:
        return int(named[-1])
    match = _RANK.search(path.name)
    return int(match[1]) if match else None


def _ranked(dumps: list[Path]) -> list[tuple[int, Path]]:
    """By rank; a rank may have a dump of each recorder, NCCL's and Gloo's, whose names begin otherwise."""
    ranked: dict[tuple[int, str], Path] = {}
    for path in dumps:
        rank = rank_of(path)
        if rank is None:
            raise BadInput(
                f"{path}: its name does not say which rank wrote it", "end its name with the rank, as in trace_rank_3"
            )
        key = rank, path.name[: path.name.rindex(str(rank))].rstrip("0")
        if key in ranked:
            if path.suffix != ranked[key].suffix:
                ranked[key] = max(path, ranked[key], key=lambda p: (p.suffix != ".json", str(p)))
                continue  # the same dump in both formats: pickles have stacks
            raise _again(rank, path, ranked[key])
        ranked[key] = path
    return sorted((rank, path) for (rank, _), path in ranked.items())


def _again(rank: int, path: Path | str, before: Path | str) -> BadInput:
    return BadInput(f"{path}: rank {rank} a second time, after {before}", "give the dumps of one job")


def _manifest(other: list[Path]) -> dict[int, int]:
    """By rank, when its dump was taken, as `capture hang` noted it."""
    for path in other:
        if path.name == MANIFEST:
            try:
                manifest = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
                times = msgspec.convert(manifest.get("dumped_ns", {}), dict[str, int])
                return {int(rank): when for rank, when in times.items() if rank.isdigit()}
            except (OSError, msgspec.MsgspecError):
                return {}
    return {}


def _read_all(files: list[tuple[int, Path]], manifest: dict[int, int]) -> tuple[list[Found], list[tuple[str, str]]]:
    tail = max(_TAIL, _KEPT // len(files))
    total = sum(path.stat().st_size for _, path in files)
    names = [(str(path), tail) for _, path in files]
    if total < _MANY or (os.cpu_count() or 1) < 2:
        return _sorted(files, map(_read_one, names), manifest)
    workers = min(os.cpu_count() or 1, 8, len(files))
    with closing(_read_by(workers, names)) as results:
        return _sorted(files, results, manifest)


def _read_by(workers: int, names: list[tuple[str, int]]) -> Generator[Read | str, None, None]:
    """By so many processes, in order."""
    parts = [names[i : i + _AT_ONCE] for i in range(0, len(names), _AT_ONCE)]
    waiting: dict[int, list[Read | str]] = {}
    following = 0
    pool = Pool(workers, nullcontext)
    try:
        with closing(pool.run([(None, _read_part, (part,)) for part in parts])) as coming:
            for place, results in coming:
                waiting[place] = results
                while following in waiting:
                    yield from waiting.pop(following)
                    following += 1
    except Died:
        raise BadInput("a process that reads dumps died (out of memory?)", "give it more memory") from None
    finally:
        pool.end()


def _read_part(names: list[tuple[str, int]]) -> list[Read | str]:
    return [_read_one(name) for name in names]


def _sorted(
    files: list[tuple[int, Path]], results: Iterable[Read | str], manifest: dict[int, int]
) -> tuple[list[Found], list[tuple[str, str]]]:
    found, refused = [], []
    for (rank, path), result in zip(progress.each("reading dumps", files), results, strict=True):
        if isinstance(result, str):
            refused.append((str(path), result))
            continue
        when = manifest.get(rank, NONE)
        dated = "manifest" if when != NONE else "file"
        found.append(Found(rank, str(path), result, when if when != NONE else path.stat().st_mtime_ns, dated))
    return found, refused


def _read_one(job: tuple[str, int]) -> Read | str:
    """A dump; where it cannot be read, why, in one line."""
    name, tail = job
    try:
        path = Path(name)
        if path.stat().st_size > _MOST_BYTES:
            return f"{name}: has {path.stat().st_size} bytes, more than any dump of a flight recorder"
        return read(name, path.read_bytes(), tail)
    except StepscopeError as error:
        return str(error)
    except OSError as error:
        return f"{name}: cannot be read ({error.strerror})"


def _of_one_job(found: list[Found], refused: list[tuple[str, str]]) -> list[Found]:
    """Without dumps of another job: another default group than most, or calls that end long before those of the
    others."""
    worlds = {f.path: f.read.members.get(_EVERYBODY, ()) for f in found}
    declared = Counter(w for w in worlds.values() if w)
    usual = max(sorted(declared), key=lambda w: (declared[w], size_of(w)), default=())
    spans = {f.path: f.read.columns["time_created_ns"] for f in found if len(f.read.columns["time_created_ns"])}
    first = sorted(int(times.min()) for times in spans.values())
    middle = first[len(first) // 2] if first else NONE
    kept = []
    for one in found:
        own = worlds[one.path]
        if own and own != usual:
            refused.append(
                (one.path, f"{one.path}: of another job ({size_of(own)} ranks, the others have {size_of(usual)})")
            )
        elif one.path in spans and int(spans[one.path].max()) < middle - _STALE_NS:
            refused.append((one.path, f"{one.path}: of an earlier run (its last call is older than all of the others)"))
        else:
            kept.append(one)
    by: dict[tuple[int, bool], Found] = {}
    for one in kept:
        hosted = bool(one.read.columns["hosted"].any())
        if (before := by.setdefault((one.rank, hosted), one)) is not one:
            raise _again(one.rank, one.path, before.path)
    return kept
