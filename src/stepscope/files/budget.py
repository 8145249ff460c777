"""How much memory this process may take, and how much it takes: the one owner of the budget.

The budget is of the process, not of a profile: what counts is what all of them hold together. It bounds anonymous
memory. Pages of files that are mapped do not count, since the kernel drops them when it needs the room; that is what
large tables become (`stepscope.model.spill`). Whoever holds much asks whether it is `roomy`.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files import cores

ENV = "STEPSCOPE_MEMORY"

#: Python, NumPy and Polars take about 100 MB before anything is read, and a part of a table must fit beside them.
LEAST = 256 << 20

#: Of what the machine or the cgroup has. The rest is for those beside us, and for what is allocated between two looks.
SHARE = 0.75

#: Addresses that the interpreter and the libraries take, used or not, and those of each thread: an arena and a stack.
_LIBRARIES, _PER_THREAD = 896 << 20, 72 << 20

#: What is smaller than this is not worth a look at how much is used.
SMALL = 16 << 20

#: A cgroup (v1) without a limit says a number near 2^63.
_NO_LIMIT = 1 << 60

_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

#: glibc's number for the size from which on an array has pages of its own, which are given back with it. Left alone it
#: goes up to 32 MiB, and what was freed below that stays with the process: 300 MB after a table of 24 million calls.
_M_MMAP_THRESHOLD, _OWN_PAGES = -3, 1 << 20

#: glibc's number for how many arenas there may be. By default threads have their own, and what is freed in one is not
#: used by another: a report of a million kernels, at which two threads work, took 50 MB more.
_M_ARENA_MAX = -8

#: Growth after which it is worth to look for holes.
GROWN = 128 << 20

_given: int | None = None
_settled = 0


def parse(text: str | int, named: str = "--memory") -> int:
    """Bytes of `1GiB`, `500MB`, `2g` or a number. `BadInput` for what is not a size, or too small to work with."""
    size = text if isinstance(text, int) else size_of(text)
    gap = "" if named.endswith("=") else " "
    if size is None:
        raise BadInput(f"{named}{gap}{str(text)[:100]!r} is not a size", "write 1GiB or 500MB")
    if size < LEAST:
        raise BadInput(f"{named}{gap}{text}: too little to work with", f"give {LEAST >> 20}MiB or more")
    return size


def size_of(text: str) -> int | None:
    """Bytes of a size as people write it; None where it is not one."""
    parts = _SIZE.fullmatch(text)
    if parts is None:
        return None
    number, prefix, binary = parts.groups()
    if binary and not prefix:
        return None
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[prefix.lower()])


def keep(size: str | int | None) -> None:
    """From now on this is the budget; None for that of the environment, or by default a share of what there is."""
    global _given
    _given = None if size is None else parse(size)
    if _given is not None and (option := of_glibc("mallopt")) is not None:
        option(_M_MMAP_THRESHOLD, _OWN_PAGES)


def total() -> int:
    """The budget in bytes."""
    if _given is not None:
        return _given
    if text := os.environ.get(ENV):
        return parse(text, ENV + "=")
    return _default()


def roomy(more: int, held: int = 0) -> bool:
    """Whether there is room for so many bytes more, and half of the budget left for what is made of them.

    `held` is the size of something that is held already: what is small is not worth a look.
    """
    return more + held < SMALL or not _over(more)


def tight() -> bool:
    """Whether what can be made again should be let go."""
    return _over(0)


def _over(more: int) -> bool:
    """Whether so many bytes more are over half of the budget, when what was freed is given back."""
    if used() + more <= total() // 2:
        return False
    give_back()
    return used() + more > total() // 2


def give_back() -> None:
    """Let the system have the pages that nothing is on."""
    if (trim := of_glibc("malloc_trim")) is not None:
        trim(0)


def settle() -> None:
    """The same, where the process has grown by much since it last did: between two pieces of long work.

    What is freed stays with the process, in holes between what is not: a quarter of what a diagnosis takes.
    """
    global _settled
    if (now := used()) > _settled + GROWN:
        give_back()
        _settled = used()
    else:
        _settled = min(_settled, now)


@cache
def of_glibc(name: str) -> ctypes._NamedFuncPointer | None:
    """A function of the C library, where it is glibc."""
    try:
        library = ctypes.CDLL(None)
        return getattr(library, name) if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError):  # no such library: Windows
        return None


def used() -> int:
    """Anonymous bytes that the process holds now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (it is read often: a path object takes as long)
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _page()


@cache
def _page() -> int:
    return os.sysconf("SC_PAGE_SIZE")


@cache
def _default() -> int:
    there = available()
    return sys.maxsize if there is None else max(LEAST, int(SHARE * there))


def available(root: Path = Path("/")) -> int | None:
    """What the machine has, or less where a cgroup of the process has a limit; None where nothing tells."""
    limits = [*_cgroup_limits(root), *_of_machine(), *_of_addresses()]
    return min(limits, default=None)


def _of_machine() -> list[int]:
    with suppress(OSError, ValueError, AttributeError):  # Windows has no sysconf
        return [os.sysconf("SC_PHYS_PAGES") * _page()]
    return []


def need_addresses() -> None:
    """Before the libraries are loaded, and start threads: all share one arena of memory, and a limit of addresses that
    they would use up is refused, since they abort."""
    if "polars" in sys.modules:  # then what is left can be told: `_of_addresses`
        return
    if (option := of_glibc("mallopt")) is not None:
        option(_M_ARENA_MAX, 1)
    threads = _threads()
    limit = _most_addresses()
    if limit is None:
        return
    least = _LIBRARIES + threads * _PER_THREAD + LEAST
    if limit < least:
        reason = f"`ulimit -v` allows {limit >> 20} MiB of addresses, too little to work with"
        raise BadInput(reason, f"it takes {least >> 20} MiB here: raise it, or set it to unlimited")


def _threads() -> int:
    """Of the library of tables. It panics where a user sets it to 0."""
    name = cores.ENV
    said = os.environ.get(name, "").strip()
    if said and not (said.isdecimal() and int(said) > 0):
        raise BadInput(f"{name}={said[:40]} is not a number of threads", "set it to 1 or more, or unset it")
    return int(said or 0) or os.cpu_count() or 1


def _most_addresses() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _of_addresses() -> list[int]:
    """What `ulimit -v` leaves. Libraries end the process where it is used up: they cannot say so any more."""
    limit = _most_addresses()
    if limit is None:
        return []
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * _page()
    except (OSError, ValueError):
        return []
    if limit - taken < LEAST:
        left = max(limit - taken, 0) >> 20
        raise BadInput(f"`ulimit -v` leaves {left} MiB, too little to work with", "raise it, or set it to unlimited")
    return [limit - taken]


def _cgroup_limits(root: Path) -> list[int]:
    """Limits of the process's memory cgroups, from its own up to the one that is mounted; of both versions."""
    limits: list[int] = []
    names: tuple[str, ...]
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if number == "0" and not controllers:
            mount, names = _mount(root, "cgroup2", ""), ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            mount, names = _mount(root, "cgroup", "memory"), ("memory.limit_in_bytes",)
        else:
            continue
        if mount is not None:
            limits += _upwards(mount, path, names)
    return limits


def _upwards(mount: Path, path: str, names: tuple[str, ...]) -> list[int]:
    """In a container the path may be that of the host, which is not below the mount: what is there counts."""
    folder = mount / path.strip("/")
    folders = [folder, *folder.parents] if ".." not in folder.parts else [mount]
    within = [f for f in folders if f == mount or mount in f.parents]
    values = [line.strip() for f in within for name in names for line in _lines(f / name)]
    return [int(v) for v in values if v.isdecimal() and int(v) < _NO_LIMIT]


def _mount(root: Path, kind: str, option: str) -> Path | None:
    """Where a hierarchy of cgroups is mounted."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) > 4 and len(kinds) > 2 and kinds[0] == kind and (not option or option in kinds[2].split(",")):
            return root / fields[4].lstrip("/")
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
