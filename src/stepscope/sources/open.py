"""From what a user names (files, directories, globs) to opened sources, one per file, in natural order."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from stepscope import progress
from stepscope.errors import BadInput, meant
from stepscope.files import cores
from stepscope.model.source import Reader, Source
from stepscope.sources.detect import (
    KINDS,
    Kind,
    is_pipeline_log,
    kind_of,
    named_like_profile,
    refusal,
)
from stepscope.sources.guarded import GuardedSource

#: Given a path and a function that opens it, a source: a cache decides here whether opening is needed at all.
Wrap = Callable[[Path, Callable[[], Source]], Source]

#: What names something that is not on a file system (decision 0045).
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)

#: Of several exports of one report, the one that needs least work to read.
_PREFERENCE: tuple[Kind, ...] = ("nsys-sqlite", "nsys-parquet", "nsys-rep")

#: The folders that `capture run --backend both` makes in its own.
_OF_BOTH = ("nsys", "torch")
#: Folders that an error names; a listing of more does not help.
_MOST_NAMED = 20

#: Those of `capture run --every`, one for each stretch of the run that was recorded.
_STRETCH = re.compile(r"stretch-\d+")

#: What `stepscope export` writes.
_EXPORTS: tuple[Kind, ...] = ("perfetto-export", "chrome-export", "export-folder")

#: Files are hashed and scanned outside the interpreter's lock; more threads than this only use memory.
_THREADS = 4


def open_sources(
    paths: str | Path | Sequence[str | Path], *, nsys: str | None = None, wrap: Wrap | None = None
) -> list[Source]:
    """Open every profile that `paths` name: files, directories and globs, together one multi-rank profile.

    `nsys` is the program that exports `.nsys-rep` files; `wrap` may put a cache between a path and its opening.
    Sources come in natural order of their paths, so that the same files give the same ranks however they were named.
    """
    return open_found(find_profiles([paths] if isinstance(paths, str | Path) else paths), nsys=nsys, wrap=wrap)


def open_found(
    found: Sequence[tuple[Path, Kind]], *, nsys: str | None = None, wrap: Wrap | None = None
) -> list[Source]:
    """Open what was found, in its order."""
    openers = [opener_of(item, nsys=nsys, wrap=wrap) for item in found]
    if len(openers) == 1:
        return [openers[0]()]
    sources = []
    progress.report("opening files", 0, len(found))
    with ThreadPoolExecutor(min(_THREADS, len(found), cores.threads())) as pool:
        try:
            contexts = [copy_context() for _ in openers]  # threads would not know whether the files are still wanted
            for source in pool.map(lambda context, opener: context.run(_one_of_several, opener), contexts, openers):
                sources.append(source)
                progress.report("opening files", len(sources), len(found))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return sources


def _one_of_several(opener: Callable[[], Source]) -> Source:
    with progress.within():
        return opener()


def opener_of(item: tuple[Path, Kind], *, nsys: str | None = None, wrap: Wrap | None = None) -> Callable[[], Source]:
    """What opens one of the profiles that were found."""
    path, kind = item
    opener = partial(GuardedSource, path, _opener(path, kind, nsys))
    return partial(wrap, path, opener) if wrap else opener


def find_profiles(paths: Sequence[str | Path], all_stretches: bool = False) -> list[tuple[Path, Kind]]:
    """The profiles that `paths` name, each with its kind, in natural order."""
    if not paths:
        raise BadInput("no profile given", f"give {KINDS}")
    profiles = [profile for given in paths for path in _expand(given) for profile in _profiles_at(path, all_stretches)]
    _refuse_repeats([path for path, _ in profiles])
    return sorted(profiles, key=lambda item: natural_key(item[0]))


def natural_key(path: Path) -> tuple[tuple[tuple[int, int | str], ...], ...]:
    """Sorts rank2 before rank10."""
    return tuple(
        tuple((0, int(t)) if t.isdigit() else (1, t) for t in re.split(r"([0-9]+)", part) if t) for part in path.parts
    )


def _expand(given: str | Path) -> list[Path]:
    if not str(given):
        raise BadInput("an empty path was given", "is a shell variable unset? Give `.` for this directory")
    path = Path(os.path.expanduser(given))  # noqa: PTH111 (pathlib fails where there is no such user)
    try:
        if path.exists():  # first: a file may have brackets in its name
            return [path]
        if _URL.match(str(given)):
            slashes = ":///" if str(given).lower().startswith("file:") else "://"
            url = re.sub(":/+", slashes, str(given), count=1)  # pathlib makes one slash of two
            raise BadInput(f"{url}: a URL; only files are read", _copied(url))
        if glob.has_magic(str(path)):
            matches = [Path(m) for m in glob.glob(str(path), recursive=True)]  # noqa: PTH207 (takes absolute ones)
            if not matches:
                raise BadInput(f"{given}: nothing matches", "check the pattern, and the directory it starts in")
            return sorted(matches, key=natural_key)
    except (OSError, ValueError) as error:  # a name with a null byte, or too long for the file system
        raise BadInput(f"{given!s:.200}: not a usable path ({error})", "check the path") from None
    if path.is_symlink() and _leads_back(path):
        raise BadInput(f"{path}: a link that leads back to itself", "make the link again")
    if path.is_symlink():
        raise BadInput(f"{path}: a link to {path.readlink()}, which is missing", "restore the file it points to")
    shown = path if str(path).strip() else repr(str(path))
    raise BadInput(f"{shown}: no such file", _meant(path) or "check the path")


def _leads_back(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _copied(url: str) -> str:
    """How what is at the URL becomes a file."""
    if url.lower().startswith("http"):
        return "download it first (`curl -LO URL`)"
    if url.lower().startswith("file:"):
        return f"give its path: {unquote(url.partition('://')[2])}"
    return "copy it first (`aws s3 sync`), or mount the bucket"


def _meant(path: Path) -> str | None:
    """The file beside it that has nearly this name; a number is none, and was to choose a step."""
    if str(path).isdecimal():
        return f"a step is chosen by --index {path}"
    try:
        there = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return None
    return meant(path.name, there, lambda name: str(path.with_name(name))) if path.name else None


def _refuse_odd_name(path: Path) -> None:
    """Names are shown, and kept in tables: both are UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise BadInput(f"{shown}: the name is not UTF-8", "rename it") from None


def _profiles_at(path: Path, all_stretches: bool = False) -> list[tuple[Path, Kind]]:
    _refuse_odd_name(path)
    if not path.is_file() and not path.is_dir():
        raise BadInput(f"{path}: not a regular file", "write it to a file first: profiles are read more than once")
    kind = kind_of(path)
    if kind is not None:
        return [(path, kind)]
    if path.is_dir():
        return _profiles_in(path, all_stretches)
    raise refusal(path)


def _profiles_in(directory: Path, all_stretches: bool = False) -> list[tuple[Path, Kind]]:
    """All profiles directly in a directory; of stretches of a run the middle one, or all.

    Other files are ignored, but not broken ones that are named like one.
    """
    try:
        entries = sorted((e for e in directory.iterdir() if not e.name.startswith(".")), key=natural_key)
    except OSError as error:
        raise BadInput(f"{directory}: cannot be listed ({error.strerror})", "check its permissions") from None
    profiles: list[tuple[Path, Kind]] = []
    for entry in entries:
        kind = kind_among_others(entry)
        if kind is not None:
            _refuse_odd_name(entry)
            profiles.append((entry, kind))
        elif entry.is_file() and named_like_profile(entry):
            raise refusal(entry)
    below = [entry for entry in entries if entry.name in _OF_BOTH and entry.is_dir() and holds_profiles(entry)]
    if not profiles and below:
        return [profile for entry in below for profile in _profiles_in(entry, all_stretches)]
    if not profiles and (several := stretches(directory)):
        chosen = several if all_stretches else [middle(several)]
        return [profile for entry in chosen for profile in _profiles_in(entry)]
    if not profiles:
        raise BadInput(f"{directory}: no profile in this directory", _instead(entries))
    return _without_twins(_without_logs(_without_snapshots(_without_exports(profiles))))


def stretches(directory: Path) -> list[Path]:
    """The stretches of a run that were recorded into a directory, in order."""
    there = directory.iterdir() if directory.is_dir() else ()
    return sorted((entry for entry in there if _STRETCH.fullmatch(entry.name) and entry.is_dir()), key=natural_key)


def middle(several: list[Path]) -> Path:
    """The stretch that stands for a run: neither its beginning nor its end."""
    return several[len(several) // 2]


def _without_exports(profiles: list[tuple[Path, Kind]]) -> list[tuple[Path, Kind]]:
    """Exports kept beside the traces that they were made of have the same ranks: they are left out."""
    others = [(path, kind) for path, kind in profiles if kind not in _EXPORTS]
    return others or profiles


def _instead(entries: list[Path]) -> str:
    """What to give instead of a directory with these entries and no profile of its own."""
    if any(entry.suffix == ".parquet" for entry in entries):
        return "its parquet files are not an nsys export without StringIds.parquet: export or copy all of it again"
    below = [entry for entry in entries if entry.is_dir() and holds_profiles(entry)]
    if not below:
        return f"give {KINDS}"
    more = f" and {len(below) - _MOST_NAMED} more" if len(below) > _MOST_NAMED else ""
    return f"there are some one level down: give {', '.join(map(str, below[:_MOST_NAMED]))}{more}"


def holds_profiles(directory: Path) -> bool:
    """Whether some file of it is a profile."""
    try:
        return any(kind_among_others(entry) for entry in directory.iterdir())
    except (BadInput, OSError):
        return False


def kind_among_others(entry: Path) -> Kind | None:
    """The kind of an entry of a directory that may hold anything: of JSON files, only traces count."""
    try:
        kind = kind_of(entry)
    except BadInput:
        if named_like_profile(entry):
            raise
        return None
    if kind == "pipeline-log" and not is_pipeline_log(entry):  # any program may leave JSON lines
        return None
    if kind == "kineto" and not named_like_profile(entry):
        from stepscope.sources.kineto import looks_like_kineto

        return kind if looks_like_kineto(entry) else None
    return kind


def _without_snapshots(profiles: list[tuple[Path, Kind]]) -> list[tuple[Path, Kind]]:
    """Without the snapshots that lie beside traces: of the same ranks, which would be there twice. Else all."""
    return [(path, kind) for path, kind in profiles if kind != "snapshot"] or profiles


def _without_logs(profiles: list[tuple[Path, Kind]]) -> list[tuple[Path, Kind]]:
    """Without the logs of items or steps that lie beside profiles, whose ranges tell the same. Else all."""
    return [(path, kind) for path, kind in profiles if kind not in ("pipeline-log", "step-log")] or profiles


def _without_twins(profiles: list[tuple[Path, Kind]]) -> list[tuple[Path, Kind]]:
    """Without the reports and slower exports that lie beside an export of the same report."""
    best: dict[str, Kind] = {}
    for path, kind in profiles:
        if kind in _PREFERENCE:
            other = best.setdefault(_stem(path), kind)
            best[_stem(path)] = min(kind, other, key=_PREFERENCE.index)
    return [(path, kind) for path, kind in profiles if kind not in _PREFERENCE or best[_stem(path)] == kind]


def _stem(path: Path) -> str:
    """The name that all exports of one report share: `loop.nsys-rep`, `loop.sqlite`, `loop_pqtdir`."""
    return re.sub(r"(\.(nsys-rep|qdrep|sqlite|sqlite3|db)|[._](pqtdir|parquetdir|parquet))$", "", path.name)


def _refuse_repeats(paths: list[Path]) -> None:
    """The same file twice would be two ranks that agree suspiciously well."""
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        stat = path.stat()
        first = seen.setdefault((stat.st_dev, stat.st_ino), path)
        if first is not path:
            same = f"{path}: given twice" if first == path else f"{first} and {path} are the same file"
            raise BadInput(same, "give each file once")


def _opener(path: Path, kind: Kind, nsys: str | None) -> Callable[[], Reader]:
    def opener() -> Reader:
        if kind == "kineto":
            from stepscope.sources.kineto import open_kineto

            return open_kineto(path)
        if kind == "export-folder":
            from stepscope.sources.exported.folder import open_export_folder

            return open_export_folder(path)
        if kind == "chrome-export":
            from stepscope.sources.exported.chrome import open_chrome_export

            return open_chrome_export(path)
        if kind in ("pftrace", "perfetto-export"):
            from stepscope.sources.pftrace import open_pftrace

            return open_pftrace(path)
        if kind == "pipeline-log":
            from stepscope.sources.pipelinelog import open_pipelinelog

            return open_pipelinelog(path)
        if kind == "step-log":
            from stepscope.sources.steplog import open_steplog

            return open_steplog(path)
        if kind in ("ncu-rep", "ncu-csv"):
            from stepscope.sources.ncu import open_ncu_csv, open_ncu_report

            return open_ncu_report(path) if kind == "ncu-rep" else open_ncu_csv(path)
        if kind == "snapshot":
            from stepscope.sources.snapshot import open_snapshot

            return open_snapshot(path)
        from stepscope.sources.nsys import open_parquet, open_report, open_sqlite

        if kind == "nsys-sqlite":
            return open_sqlite(path)
        return open_parquet(path) if kind == "nsys-parquet" else open_report(path, nsys=nsys)

    return opener
