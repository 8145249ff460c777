"""Readable C++ names for sources that have only mangled ones (docs/decisions/0006-demangling.md).

The C++ runtime that NumPy itself links against does the work. Without one (or for a name cut short) the qualified name
is read from the mangled text and its template arguments are left out; what is not readable even then stays as it is.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from functools import cache

import polars as pl

#: What every Itanium-mangled name begins with.
PREFIX = "_Z"
_RUNTIMES = {"darwin": ("libc++.1.dylib", "libc++abi.dylib")}.get(sys.platform, ("libstdc++.so.6", "libc++abi.so.1"))
_LENGTH = re.compile(r"([1-9]\d{0,8})")
#: A first template argument that is a class, perhaps within a namespace that was named before.
_ARGUMENT = re.compile(r"I(N?)(?:S[0-9A-Z]*_)?(?=[1-9])")


def demangled(names: pl.Series) -> pl.Series:
    """`names` with every mangled one made readable."""
    mangled = names.str.starts_with(PREFIX).fill_null(False)
    if not mangled.any():
        return names
    readable = {t: demangle(t) for t in names.filter(mangled).unique().to_list()}
    return names.replace(readable)


@cache
def demangle(name: str) -> str:
    """The readable form of one name; the name itself where it is not mangled, or not readable."""
    if not name.startswith(PREFIX):
        return name
    runtime = _runtime()
    readable = runtime(name) if runtime is not None else None
    return readable or qualified(name) or name


def qualified(name: str) -> str | None:
    """Namespaces and name of a mangled function, with its first template argument where that is a class.

    A function is `_Z` and a source name (`3foo`) or a nested one (`N2at6native3fooE`); template arguments are `I…E`.
    Only plain names are read, the rest is left out. None where not even the first name can be read.
    """
    at = 2
    nested = name[at : at + 1] == "N"
    at += nested
    while nested and name[at : at + 1] in ("K", "V", "r", "L"):  # qualifiers of a member function
        at += 1
    parts, at = _names(name, at, nested)
    if not parts or parts == ["std"]:
        return None
    inner: list[str] = []
    if match := _ARGUMENT.match(name, at):
        inner, _ = _names(name, match.end(), match[1] == "N")
    return "::".join(parts) + (f"<{'::'.join(inner)}>" if inner else "")


def _names(name: str, at: int, nested: bool) -> tuple[list[str], int]:
    """Source names from `at` on, one unless `nested`, and where they end."""
    parts: list[str] = []
    if name[at : at + 2] == "St":
        parts.append("std")
        at += 2
    while match := _LENGTH.match(name, at):
        first, length = match.end(), int(match[1])
        if first + length > len(name):
            break
        part = name[first : first + length]
        parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N_") else part)
        at = first + length
        if not nested:
            break
    return parts, at


@cache
def _runtime() -> Callable[[str], str | None] | None:
    """`__cxa_demangle` of the C++ runtime; None where there is none."""
    for library in _RUNTIMES:
        try:
            return _demangler(ctypes.CDLL(library), ctypes.CDLL(None))
        except (OSError, AttributeError, TypeError):
            continue
    return None


def _demangler(runtime: ctypes.CDLL, libc: ctypes.CDLL) -> Callable[[str], str | None]:
    function, free = runtime["__cxa_demangle"], libc["free"]
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.argtypes, free.restype = [ctypes.c_void_p], None

    def call(name: str) -> str | None:
        status = ctypes.c_int(-1)
        pointer = function(name.encode("utf-8", "replace"), None, None, ctypes.byref(status))
        if not pointer:
            return None
        try:
            text = ctypes.string_at(pointer)
        finally:
            free(pointer)
        return text.decode("utf-8", "replace") if status.value == 0 else None

    return call
