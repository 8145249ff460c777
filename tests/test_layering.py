"""Packages import leftwards only, rooms of a package too, and nobody imports what is private to another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope

ROOT = Path(stepscope.__file__).parent

#: From left to right. A package may import those of the layers before its own, and itself.
LAYERS = (
    {"errors", "progress"},
    {"files"},
    {"intervals"},
    {"model"},
    {"statistics"},
    {"annotate", "capture", "sources", "store", "simulate"},
    {"integrations"},
    {"hooks"},
    {"derive"},
    {"analyses", "hang"},
    {"findings", "compare", "verify", "nsys", "sql", "export"},
    {"questions"},
    {"timeline"},
    {"report"},
    {"render"},
    {"api"},
    {"web", "agent"},
    {"cli"},
    {"__init__", "__main__"},
)
#: The same within a package: rooms of one step of the stairs do not know each other.
ROOMS = {
    "derive": (
        {"rank"},
        {"windows"},
        {"accounting"},
        {"host", "comm"},
        {"graph", "run"},
        {"peers", "pipelines", "pytorch", "kernel"},
        {"replay", "flops", "memory"},
        {"work"},
    ),
    "simulate": ({"trace"}, {"job"}, {"engine"}, {"programs"}, {"nsys", "kineto", "truth"}, {"run"}, {"hang"}),
    "nsys": ({"reports"}, {"recipes"}),
}
#: What is established, and asked, must not depend on where the tables came from.
FORBIDDEN = {
    "derive": {"annotate", "capture", "sources", "store", "simulate", "integrations", "hooks"},
    "analyses": {"annotate", "capture", "sources", "store", "simulate", "integrations", "hooks"},
    "hang": {"annotate", "capture", "sources", "store", "simulate", "integrations", "hooks", "derive"},
    # Training jobs import these: nothing but the standard library, and each other.
    "annotate": {"files", "intervals", "model"},
    "integrations": {"errors", "files", "intervals", "model", "statistics", "capture", "sources", "store", "simulate"},
    "hooks": {"errors", "files", "intervals", "model", "statistics", "capture", "sources", "store", "simulate"},
    # The truth of a simulation shares no code with what is tested against it.
    "simulate": {"intervals", "statistics"},
}
#: Packages whose files are one thing each, and do not import each other.
APART = ("analyses", "findings.detectors")
#: Debts: (importer, imported) modules that break the rule and are known to. Keep it empty.
DEBTS: set[tuple[str, str]] = set()


def modules(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Every module below `root`: its dotted name without `stepscope`, and its source."""
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        name = parts if len(parts) == 1 or parts[-1] != "__init__" else parts[:-1]
        yield ".".join(name), file.read_text("utf-8")


def imports(source: str) -> Iterator[tuple[str, str]]:
    """What a module imports of stepscope, at any depth of its code: a dotted module or package, and a name of it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((a.name.removeprefix("stepscope."), "") for a in node.names if a.name.startswith("stepscope."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "stepscope":
            for alias in node.names:
                yield node.module.removeprefix("stepscope").removeprefix("."), alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"


def edges(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Every import: the importing module, the imported module or package, and what of it ("" for the whole)."""
    sources = dict(found)
    for module, source in sources.items():
        for target, name in imports(source):
            whole = ".".join(filter(None, (target, name)))
            yield (module, whole, "") if whole in sources else (module, target, name)


def wrongs(found: Iterator[tuple[str, str]]) -> list[str]:
    """Every import that breaks a rule, in words."""
    return [
        f"{module} imports {target}{f'.{name}' if name else ''}: {why}"
        for module, target, name in edges(found)
        if (why := _wrong(module, target, name)) and (module, target) not in DEBTS
    ]


def _wrong(module: str, target: str, name: str) -> str | None:
    own, other = module.split("."), target.split(".")
    if not target or (package := own[0]) in ("__init__", "__main__"):
        return None  # an attribute of stepscope itself, such as __version__
    private = next((p for p in (*other, name) if p.startswith("_") and not p.startswith("__")), None)
    if private and own[: max(1, len(own) - 1)] != other[: max(1, len(own) - 1)]:
        return f"{private} is private to {'.'.join(other[:-1]) or other[0]}"
    if package != other[0]:
        level = _level(LAYERS, package, other[0])
        if not level:
            return "upwards, or beside it" if level is False else "no layer is given"
        return "forbidden" if other[0] in FORBIDDEN.get(package, ()) else None
    if package in ROOMS and len(own) > 1 and len(other) > 1 and own[1] != other[1]:
        return None if _level(ROOMS[package], own[1], other[1]) else "upwards, or beside it, within the package"
    for apart in APART:
        rest, mine = target.removeprefix(apart + "."), module.removeprefix(apart + ".")
        if mine != module and rest != target and rest.split(".")[0] != mine.split(".")[0]:
            return f"files of {apart} do not know each other"
    return None


def _level(layers: tuple[set[str], ...], importer: str, imported: str) -> bool | None:
    """Whether `imported` lies before `importer`; None where one of them has no place."""
    place = {p: i for i, layer in enumerate(layers) for p in layer}
    if importer not in place or imported not in place:
        return None
    return place[imported] < place[importer]


def test_imports_point_left():
    assert wrongs(modules()) == []


def test_every_room_has_a_place():
    for package, rooms in ROOMS.items():
        exist = {p.name for p in (ROOT / package).iterdir() if p.is_dir() and any(p.glob("*.py"))}
        assert exist <= set().union(*rooms), f"give every room of {package} a place in ROOMS"


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("model.planted", "from stepscope.derive.rank.data import RankData", "upwards"),
        ("derive.rank.planted", "from stepscope.derive.comm.across import across", "upwards"),
        ("derive.comm.planted", "from stepscope.derive.host import waits", "beside"),
        ("derive.comm.planted", "import stepscope.sources.open", "forbidden"),
        ("findings.detectors.planted", "from stepscope.findings.detectors import host_sync", "do not know each other"),
        ("findings.detectors.planted", "from stepscope.findings.detectors.host_sync import ID", "do not know"),
        ("analyses.planted", "from stepscope.analyses.overlap import overlap", "do not know each other"),
        ("render.planted", "from stepscope.derive.host.waits import _kinds", "private"),
        ("render.planted", "from stepscope.cli.commands import _capture_run", "private"),
        ("report.planted", "def f():\n    from stepscope.render.table import Pen", "upwards"),
        ("attic.planted", "from stepscope.model.result import Result", "no layer"),
    ],
)
def test_a_planted_import_is_seen(module: str, line: str, why: str):
    known = {m: "" for m, _ in modules()}
    (said,) = wrongs(iter([*known.items(), (module, line)]))
    assert why in said, said


def users_of_rooms(found: Iterator[tuple[str, str]]) -> dict[str, set[str]]:
    """By module of derive: the questions that it serves, through whatever other modules of derive."""
    users: dict[str, set[str]] = {}
    for module, target, _ in edges(found):
        if target.startswith("derive.") and module != target:
            users.setdefault(target, set()).add(module)

    def served(module: str, passed: frozenset[str]) -> set[str]:
        by = users.get(module, set()) - passed
        through = (served(user, passed | by) for user in by if user.startswith("derive."))
        return {_asker(user) for user in by if not user.startswith("derive.")}.union(*through)

    return {module: served(module, frozenset({module})) for module in users if module.count(".") > 1}


def _asker(module: str) -> str:
    """The question that a module belongs to: an analysis or a command by its name, anything else by its package."""
    parts = module.split(".")
    return ".".join(parts[: {"analyses": 2, "cli": 3}.get(parts[0], 1)])


def test_what_one_question_needs_is_not_in_derive():
    lonely = {module: by for module, by in users_of_rooms(modules()).items() if len(by) < 2}
    assert lonely == {}, "what one question needs lies beside it: analyses/<question>/, findings/"


def test_a_room_of_one_user_is_seen():
    planted = [
        ("derive.host.inner", ""),
        ("derive.host.outer", "from stepscope.derive.host.inner import f"),
        ("derive.host.shared", ""),
        ("analyses.idle", "from stepscope.derive.host.outer import f\nfrom stepscope.derive.host.shared import f"),
        ("analyses.idle.causes", "from stepscope.derive.host.outer import f"),
        ("findings.case", "from stepscope.derive.host.shared import f"),
    ]
    users = users_of_rooms(iter(planted))
    assert users["derive.host.inner"] == users["derive.host.outer"] == {"analyses.idle"}
    assert users["derive.host.shared"] == {"analyses.idle", "findings"}


def test_debts_are_still_owed():
    owed = {(module, target) for module, target, _ in edges(modules())}
    assert owed >= DEBTS, f"paid off: {DEBTS - owed}"
