"""The site: `python docs/build_site.py` builds it into site/html, `--serve` shows it while you write.

The same Markdown is read on a forge and on the site. A forge reads CommonMark from anywhere in the repository. The
site's parser wants a blank line before a list and four spaces within its items, and knows only the files of one folder.
So a copy of every page is made such as it is read there (site/docs), and no page is written twice.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
#: Where files of the repository that pages link to lie among the pages.
REPOSITORY = "repository"
ZENSICAL = (sys.executable, "-m", "zensical")
#: What of docs/ is a page, or shown on one.
SHOWN = (".md", ".png", ".css")
_LINK = re.compile(r"(\]\()(?!\w+:|#|<)([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_ITEM = re.compile(r"^(\s*)(?:[-*+]|\d+[.)])(\s+)\S")


def build(work: Path = ROOT / "site") -> int:
    """The exit status of the builder. Whatever it warns of is an error: a link that leads nowhere, for one."""
    prepare(work)
    return subprocess.run([*ZENSICAL, "build", "--clean", "--strict"], cwd=work, check=False).returncode


def serve(work: Path = ROOT / "site") -> int:
    prepare(work)
    with subprocess.Popen([*ZENSICAL, "serve"], cwd=work) as server:
        try:
            seen = _newest()
            while server.poll() is None:
                time.sleep(1)
                if (now := _newest()) != seen:
                    seen = now
                    prepare(work)
        except KeyboardInterrupt:
            server.terminate()
    return 0


def _newest() -> float:
    return max(path.stat().st_mtime for path in DOCS.rglob("*"))


def prepare(work: Path) -> None:
    """All pages and the configuration, as the builder takes them."""
    pages = [path for path in DOCS.rglob("*") if path.suffix in SHOWN and not path.name.endswith(".in.md")]
    config = tomllib.loads((DOCS / "zensical.toml").read_text("utf-8"))["project"]
    config["nav"] = navigation(config["nav"], [_place(page) for page in pages])
    config |= {"docs_dir": "docs", "site_dir": "html"}
    listed = [
        ROOT / entry.removeprefix(f"{REPOSITORY}/") for entry in _leaves(config["nav"]) if entry.startswith(REPOSITORY)
    ]
    files = with_linked([*pages, *listed])
    kept = {work / "docs" / _place(file) for file in files}
    for file in files:
        _write(work / "docs" / _place(file), _content(file))
    for old in (work / "docs").rglob("*"):
        if old.is_file() and old not in kept:
            old.unlink()
    lines = [f"{key} = {_toml(value)}" for key, value in config.items()]
    _write(work / "zensical.toml", "\n".join(["[project]", *lines, ""]).encode())


def _content(file: Path) -> bytes:
    if file.suffix != ".md":
        return file.read_bytes()
    return with_lists(with_pipes(with_links(file.read_text("utf-8"), file))).encode()


def _write(file: Path, content: bytes) -> None:
    """Only where it changed: a server that watches builds again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists() or file.read_bytes() != content:
        file.write_bytes(content)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# -- the navigation ----------------------------------------------------------------------------------------------------


def navigation(entry: Any, pages: list[str], named: set[str] | None = None) -> Any:
    """`folder/*` becomes the pages of that folder that nothing else names."""
    named = {leaf for leaf in _leaves(entry) if not leaf.endswith("*")} if named is None else named
    if isinstance(entry, dict):
        return {title: navigation(part, pages, named) for title, part in entry.items()}
    if not isinstance(entry, list):
        return entry
    made: list[Any] = []
    for part in entry:
        if isinstance(part, str) and part.endswith("*"):
            folder = part.removesuffix("*").removesuffix("/") or "."
            among = (page for page in pages if page.endswith(".md") and str(Path(page).parent) == folder)
            made += sorted(page for page in among if page not in named)
        else:
            made.append(navigation(part, pages, named))
    return made


def _leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from _leaves(part)


# -- links -------------------------------------------------------------------------------------------------------------


def with_linked(files: list[Path]) -> list[Path]:
    """Also the files of the repository that pages link to, and what those link to in turn."""
    known = dict.fromkeys(files)
    waiting = [file for file in files if file.suffix == ".md"]
    while waiting:
        page = waiting.pop()
        for _, link, _ in _LINK.findall(page.read_text("utf-8")):
            target = _target(page, link)
            if target not in known and target.is_file():
                known[target] = None
                waiting += [target] if target.suffix == ".md" else []
    return list(known)


def with_links(markdown: str, source: Path) -> str:
    """Links as they lead among the site's files."""
    here = Path(_place(source)).parent

    def link(match: re.Match[str]) -> str:
        target = _target(source, match[2])
        if not target.is_file():
            return match[0]  # for the builder to refuse
        return f"{match[1]}{os.path.relpath(_place(target), here)}{match[3]}"

    return _LINK.sub(link, markdown)


def _target(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


def _place(file: Path) -> str:
    """Where a file of the repository lies among the pages."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    return f"{REPOSITORY}/{file.relative_to(ROOT).as_posix()}"


# -- tables and lists --------------------------------------------------------------------------------------------------


def with_pipes(markdown: str) -> str:
    """Within code in a table, a forge wants `|` escaped; the site shows the escape."""
    row = re.compile(r"^ *\|.*\|$", re.M)
    return row.sub(lambda line: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line[0]), markdown)


def with_lists(markdown: str) -> str:
    """Lists as CommonMark has them, for a parser that counts in fours: an item's content is indented to its depth."""
    made: list[str] = []
    columns: list[int] = []  # where the content of each open item begins
    fence = ""
    for line in markdown.splitlines():
        text, blank = line.lstrip(" "), not made or not made[-1].strip()
        indent = len(line) - len(text)
        item = None if fence else _ITEM.match(line)
        if item and not columns and not blank:
            made.append("")
        lazy = not (blank or item or fence)  # a paragraph goes on, whatever its indent
        while text and columns and indent < columns[-1] and not lazy and not fence:
            columns.pop()
        base = columns[-1] if columns else 0
        made.append(" " * 4 * len(columns) + line[min(indent, base) :] if text else "")
        if marker := _FENCE.match(line):
            fence = "" if fence and text.startswith(fence) else fence or marker[1]
        elif item:
            columns.append(item.end() - 1)
    return "\n".join(made) + "\n"


if __name__ == "__main__":
    sys.exit(serve() if "--serve" in sys.argv else build())
