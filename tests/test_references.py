"""What texts refer to exists here: sections, documents, decisions, files, modules, make's targets and tests."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "stepscope"
#: What a path in a text begins with: folders of the repository, and packages.
FOLDERS = "|".join(
    ["src", "tests", "docs", "page", "examples", "bench", *sorted(p.name for p in SRC.iterdir() if p.is_dir())]
)
#: Where a path in a text may begin, besides the folder of the text itself.
BASES = (ROOT, SRC, ROOT / "src", ROOT / "docs", ROOT / "tests", ROOT / "page", ROOT / "page" / "src")
#: Files of others, files that commands write, and the examples of docs/architecture.md and docs/labels.md.
FOREIGN = re.compile(
    r"^(torch|transformers|site-packages|/|\.\./shared|~)|/(torch|site-packages)/|^gate\.(md|toml)$|^x\.py$|busiest|hosts\.py$|memsets|oplog|^(mytrainer|passes)\.toml$"
)


@cache
def files() -> dict[str, Path]:
    """Every file that is the repository's own, by its path."""
    folders = ("src", "tests", "docs", "bench", "examples", "page/src", "page/tests")
    paths = [*ROOT.glob("*.*"), ROOT / "Makefile", *(p for folder in folders for p in (ROOT / folder).rglob("*.*"))]
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(paths) if path.is_file()}


@cache
def sections() -> frozenset[str]:
    return frozenset(re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "semantics.md").read_text("utf-8"), re.MULTILINE))


@cache
def decisions() -> frozenset[str]:
    return frozenset(path.name[:4] for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@cache
def known_tests() -> frozenset[str]:
    """Names of test files and of tests."""
    sources = list((ROOT / "tests").rglob("*.py"))
    named = [re.findall(r"def (test_\w+)", path.read_text("utf-8")) for path in sources]
    return frozenset(path.stem for path in sources) | {name for names in named for name in names}


@cache
def names() -> frozenset[str]:
    return frozenset(path.name for path in files().values())


@cache
def packages() -> dict[str, list[Path]]:
    """Packages and rooms by their last name."""
    found: dict[str, list[Path]] = {}
    for init in SRC.rglob("__init__.py"):
        found.setdefault(init.parent.name, []).append(init.parent)
    return found


def is_file(text: str, folder: Path) -> bool:
    if "/" not in text:
        return text in names()
    return any((base / text).exists() for base in (folder, *folder.parents[:2], *BASES))


def is_module(text: str, _: Path) -> bool:
    """Whether `room.module`, or `package.name`, is there; what begins with no package is not judged."""
    first, second = text.split(".")[:2]
    if first.startswith("_") and first not in packages():
        return any(SRC.rglob(f"{first}.py"))
    if any(re.search(rf"\b{second}\b", module.read_text("utf-8")) for module in SRC.rglob(f"{first}.py")):
        return True  # a module that is called as some package is
    return first not in packages() or any(
        (folder / f"{second}.py").exists()
        or (folder / second).is_dir()
        or re.search(rf"\b{second}\b", (folder / "__init__.py").read_text("utf-8"))
        for folder in packages()[first]
    )


#: What a reference looks like, and whether what it names is there.
RULES: dict[str, tuple[str, Callable[[str, Path], bool]]] = {
    "section": (r"§ ?(\d+)", lambda text, _: text in sections()),
    "decision": (r"[Dd]ecisions?[ \n/](\d{4})\b|\[(0\d{3})\]", lambda text, _: text in decisions()),
    "file": (r"(?<![\w/.~*{-])((?:[\w.{}-]+/)*[\w-]+\.(?:md|py|pyi|mjs|ts|toml))(?![\w*]|\.\w)", is_file),
    "folder": (
        rf"`(?![^`]*\.(?:md|py|pyi|mjs|ts|toml)`)((?:{FOLDERS})/[\w./-]*)`",
        lambda text, _: any((base / text).exists() for base in (ROOT, SRC)),
    ),
    "module": (r"`(_?[a-z]\w+\.(?!json\b|db\b|py\b)[A-Za-z]\w+)(?:\.\w+)*`", is_module),
    "target": (r"`make ([a-z][\w-]*)", lambda text, _: text in targets()),
    "test": (r"`(test_\w+)`", lambda text, _: text in known_tests()),
}


def dangling(text: str, folder: Path) -> Iterator[str]:
    """References of a text, which lies in `folder`, to what is not there."""
    for kind, (pattern, exists) in RULES.items():
        for match in re.finditer(pattern, text):
            target = next(filter(None, match.groups()))
            if not FOREIGN.search(target) and not exists(target, folder):
                yield f"{kind} {target}"


def prose(name: str, text: str) -> str:
    """What people read of a file: of a program its comments, docstrings, and strings that name a document."""
    if not name.endswith(".py"):
        return text
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    tree = ast.walk(ast.parse(text))
    strings = [node for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    told = [node.value for node in strings if "\n" in node.value or re.search(r"^[A-Z`].*\.$|docs/|§", node.value)]
    return "\n".join([*comments, *told])


def anchors(page: Path) -> set[str]:
    """Ids of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def texts() -> dict[str, Path]:
    written = re.compile(
        r"^(src|tests|bench|docs|examples|page/src|page/tests)/.*\.(py|md|ts|tsx|mjs)$|^\w+\.md$|^Makefile$"
    )
    return {name: path for name, path in files().items() if written.search(name) and path != Path(__file__)}


def test_references_lead_somewhere() -> None:
    wrong = {}
    for name, path in texts().items():
        text = path.read_text("utf-8")
        if any(dangling(text, path.parent)):  # perhaps in code alone: only then is it worth taking apart
            wrong[name] = list(dangling(prose(name, text), path.parent))
    assert {name: found for name, found in wrong.items() if found} == {}


def test_decisions_have_numbers_of_their_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers)), sorted(numbers)


def test_links_lead_to_a_heading() -> None:
    for page in (path for name, path in texts().items() if name.endswith(".md")):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]*)\)", page.read_text("utf-8")):
            assert anchor in anchors(page.parent / target if target else page), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("as semantics §6 says, and §99 does not", "section 99"),
        ("see decision 0013, or decision 0999", "decision 0999"),
        ("[0011](decisions/0011-verify-layer.md), [0777](x)", "decision 0777"),
        ("the columns of interface.md", "file interface.md"),
        ("`src/stepscope/derive/rank/data.py`, `analyses/_shorten.py`", "file analyses/_shorten.py"),
        (
            "`tests/data/moe_reference`, `src/stepscope/render/report/bundle/`",
            "folder src/stepscope/render/report/bundle/",
        ),
        ("`derive.comm`, `comm.matching`, `comm.nonsense`", "module comm.nonsense"),
        ("columns of `_commlink.GROUPS`", "module _commlink.GROUPS"),
        ("`make test`, `make nonsense`", "target nonsense"),
        ("`test_references_lead_somewhere`, `test_of_nothing`", "test test_of_nothing"),
    ],
)
def test_a_planted_reference_is_seen(text: str, wrong: str) -> None:
    assert list(dangling(text, ROOT / "docs")) == [wrong]
