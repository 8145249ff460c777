"""Commands that pages show, run: what a block of ```console shows is what came out.

A block has lines `$ command` and, below each, what it prints. `make docs` runs every block of every page and writes the
output into it; tests/test_site.py runs them too, and compares. Comments right above a block say what to do with it:

    <!-- show FIRST ... LAST | TEXT -->   only these lines of the output: from one with FIRST to one with LAST, and one
                                          with TEXT; what goes on indented below the last belongs to it
    <!-- silent -->                       the output is not shown
    <!-- exit 1 -->                       the last command ends with this status

Pages run in a scratch folder that looks like a checkout: `tests` and `examples` lie in it. The blocks of a page run in
order, and find what those of the index.md beside it left: the traces that the pages of a folder share.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stepscope.cli.main import run

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
README = ROOT / "README.md"
#: What has to be done by a shell. All other lines of ours run in this process, which is three times as fast.
_SHELL = re.compile(r"[|<>;&]|\$\(")
_BLOCK = re.compile(
    r"(?P<comments>(?:^<!-- (?:show|silent|exit)\b.*? -->\n)*)^```console\n(?P<body>.*?)^```$", re.M | re.S
)
CUT = "…"


@dataclass(frozen=True)
class Directives:
    """What the comments above a block say."""

    parts: tuple[tuple[str, str], ...] = ()
    silent: bool = False
    status: int = 0

    @classmethod
    def read(cls, comments: str) -> Directives:
        found = dict(re.findall(r"<!-- (show|silent|exit) ?(.*?) -->", comments))
        parts = [part.partition(" ... ") for part in found.get("show", "").split(" | ") if part.strip()]
        return cls(
            parts=tuple((first.strip(), last.strip() or first.strip()) for first, _, last in parts),
            silent="silent" in found,
            status=int(found.get("exit", 0)),
        )


def pages() -> list[Path]:
    """Those with blocks, the index of a folder before what lies beside it."""
    with_blocks = (page for page in (README, *DOCS.rglob("*.md")) if _BLOCK.search(page.read_text("utf-8")))
    return sorted(with_blocks, key=lambda page: (page.parent, page.name != "index.md", page.name))


def place(page: Path) -> Path:
    """Where a page stands among the pages; the README is in a folder of its own."""
    return page.relative_to(DOCS) if page != README else Path("repository") / page.name


def refreshed(among: Callable[[Path], bool] = lambda page: True) -> Iterator[tuple[Path, str]]:
    """Each page with blocks, and its text as it is when all of them are run; or only those of which `among` is true.

    The index of their folder is run with them, since they rest on it.
    """
    wanted = [page for page in pages() if among(page)]
    beside = {page.parent / "index.md" for page in wanted}
    with tempfile.TemporaryDirectory(prefix="stepscope-docs-") as folder, _settings(Path(folder)):
        for page in pages():
            if page not in wanted and page not in beside:
                continue
            scratch = Path(folder) / "pages" / place(page).with_suffix("")
            _lay_out(scratch, scratch.parent / "index")
            yield page, _run_page(page, scratch)


def _lay_out(scratch: Path, shared: Path) -> None:
    scratch.mkdir(parents=True)
    for name in ("tests", "examples"):
        (scratch / name).symlink_to(ROOT / name)
    for made in sorted(shared.iterdir()) if shared.exists() else ():
        if not (scratch / made.name).exists():
            (scratch / made.name).symlink_to(made)


@contextlib.contextmanager
def _settings(folder: Path) -> Iterator[None]:
    """What a user's environment could change, and `stepscope` and its `python` for shells."""
    (folder / "bin").mkdir()
    for name, arguments in (("stepscope", "-m stepscope "), ("python", "")):
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        program.chmod(0o755)
    wanted = {
        "HOME": str(folder / "home"),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT / "src"),
        "STEPSCOPE_CACHE_DIR": str(folder / "cache"),
        "DASK_TEMPORARY_DIRECTORY": str(folder / "dask"),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": None,
        "XDG_CONFIG_HOME": None,
        "STEPSCOPE_DEBUG": None,
    }
    before = {name: os.environ.get(name) for name in wanted}
    here = Path.cwd()
    try:
        _set(wanted)
        yield
    finally:
        os.chdir(here)
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _run_page(page: Path, scratch: Path) -> str:
    os.chdir(scratch)
    name = place(page).as_posix()
    return _BLOCK.sub(lambda match: _run_block(match, name), page.read_text("utf-8"))


def _run_block(match: re.Match[str], page: str) -> str:
    directives = Directives.read(match["comments"])
    commands = list(_commands(match["body"]))
    out: list[str] = []
    for number, command in enumerate(commands):
        status, printed = execute(command)
        wanted = directives.status if number == len(commands) - 1 else 0
        if status != wanted:
            raise RuntimeError(f"{page}: `{command}` ended with {status}, not {wanted}:\n{printed}")
        out += [f"$ {command}", *([] if directives.silent else _cut(printed, directives.parts, f"{page}: `{command}`"))]
    return f"{match['comments']}```console\n" + "\n".join(out) + "\n```"


def _commands(body: str) -> Iterator[str]:
    """Lines after `$ `, with those that a backslash or an open quotation continues."""
    lines = iter(body.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\") or _open_quotation(command):
                command += "\n" + next(lines)
            yield command


def _open_quotation(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


def execute(command: str) -> tuple[int, str]:
    """Status and output, errors among it, as a terminal shows them.

    The log of another program that ends well is left out: it may say how busy the machine is.
    """
    words = [] if _SHELL.search(command) else shlex.split(command.replace("\\\n", ""), comments=True)
    if not words or words[0] != "stepscope":
        ours = re.search(r"\bstepscope ", command)
        errors = subprocess.STDOUT if ours else subprocess.PIPE
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=errors, text=True, check=False, timeout=300
        )
        return done.returncode, done.stdout + (done.stderr if done.returncode and not ours else "")
    here = Path()
    arguments = [
        name for word in words[1:] for name in (sorted(map(str, here.glob(word))) if "*" in word else ()) or (word,)
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = run(arguments)
    return status, printed.getvalue()


def _cut(printed: str, parts: tuple[tuple[str, str], ...], where: str) -> list[str]:
    """The lines to show, of a command that prints some; what is left out between them is one sign."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if not (parts and lines):
        return lines
    shown: list[str] = []
    at = 0
    for first, last in parts:
        begin = next((i for i in range(at, len(lines)) if first in lines[i]), None)
        if begin is None:
            raise RuntimeError(f"{where}: no line with {first!r} in what follows:\n" + "\n".join(lines[at:]))
        end = next((i for i in range(begin, len(lines)) if last in lines[i]), None)
        if end is None:
            raise RuntimeError(f"{where}: no line with {last!r} in what follows:\n" + "\n".join(lines[begin:]))
        while end + 1 < len(lines) and _indent(lines[end + 1]) > _indent(lines[end]):
            end += 1  # a sentence or a cell that goes on in the next line
        gap = [CUT] if any(lines[at:begin]) else [""] if begin > at and shown else []
        shown += [*gap, *lines[begin : end + 1]]
        at = end + 1
    return [*shown, *([CUT] if any(lines[at:]) else [])]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line else -1
