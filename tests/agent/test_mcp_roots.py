"""Files below the roots are read, and no others: by whatever way they are named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_client import asked
from stepscope.agent.roots import Roots
from stepscope.agent.server import Server, server
from stepscope.errors import BadInput


@pytest.fixture
def places(tmp_path: Path, traces: Path) -> tuple[Server, Path, Path]:
    """A server, its root with a trace in it, and a folder beside the root with another."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "run").mkdir(parents=True)
    outside.mkdir()
    shutil.copy(traces / "moe4mps.sqlite", root / "run" / "inside.sqlite")
    shutil.copy(traces / "payloads.sqlite", outside / "secret.sqlite")
    (outside / "model.toml").write_text("layers = 1\n")
    return server(Roots([root])), root, outside


def code(made: Server, tool: str, /, **arguments: Any) -> str:
    result = asked(made, tool, **arguments)
    return str(result.structured_content["error"]["code"]) if result.is_error else "answered"


def test_what_is_below_is_read(places: tuple[Server, Path, Path]) -> None:
    made, root, _ = places
    (root / "link.sqlite").symlink_to(root / "run" / "inside.sqlite")
    for named in ("run/inside.sqlite", "run", "run/*.sqlite", "**/inside.sqlite", str(root / "run"), "link.sqlite"):
        assert code(made, "run", profile=named, analysis="info") == "answered", named


def test_what_is_outside_is_refused(places: tuple[Server, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made, root, outside = places
    monkeypatch.chdir(outside)  # where the server runs is no root by itself
    (root / "file.sqlite").symlink_to(outside / "secret.sqlite")
    (root / "folder").symlink_to(outside)
    (root / "mixed").mkdir()
    (root / "mixed" / "rank0.sqlite").symlink_to(outside / "secret.sqlite")
    (root / "deep" / "run_pqtdir").mkdir(parents=True)
    (root / "deep" / "run_pqtdir" / "StringIds.parquet").symlink_to(outside / "secret.sqlite")
    (root / "loop").symlink_to(root / "loop")
    (root / "beside").mkdir()
    shutil.copy(root / "run" / "inside.sqlite", root / "beside")
    (root / "beside" / "manifest.json").symlink_to(outside / "model.toml")
    for named in (
        str(outside / "secret.sqlite"),
        str(outside / "not there at all"),
        "/etc/passwd",
        "../outside/secret.sqlite",
        "run/../run/inside.sqlite",
        f"{root}/../outside/secret.sqlite",
        "../*/secret.sqlite",
        "file.sqlite",
        "folder/secret.sqlite",
        "folder",
        "fold*/secret.sqlite",
        "*.sqlite",
        "mixed",
        "mixed/rank0.sqlite",
        "deep",
        "loop",
        "beside/inside.sqlite",
        f"{outside}/*.sqlite",
    ):
        for tool, more in (("open", {}), ("sql", {"query": "SELECT 1"}), ("run", {"analysis": "info"})):
            assert code(made, tool, profile=named, **more) == "outside_roots", (tool, named)
        assert code(made, "diff", base="run", new=named) == "outside_roots"
    assert code(made, "open", profile="secret.sqlite") == "bad_input"  # of the current folder
    assert code(made, "open", profile="~/secret.sqlite") == "bad_input"
    assert code(made, "list", under="folder") == "outside_roots"
    assert code(made, "list", under="..") == "outside_roots"
    assert "secret" not in str(asked(made, "list").structured_content)


def test_files_that_options_name_are_below_too(places: tuple[Server, Path, Path]) -> None:
    made, root, outside = places
    (root / "own.toml").symlink_to(outside / "model.toml")
    trace, snapshot = "run/inside.sqlite", {"by": "stall", "timeline": str(outside / "secret.sqlite")}
    refused = [
        ("compile", trace, {"log": str(outside / "model.toml")}),
        ("compile", trace, {"against": "../outside/model.toml"}),
        ("mfu", trace, {"model": str(outside / "model.toml")}),
        ("mfu", trace, {"model": "../outside/model"}),
        ("mfu", trace, {"model": "own.toml"}),
        ("memory", trace, snapshot),
        ("pipeline", trace, {"against": str(outside / "secret.sqlite")}),
    ]
    for analysis, profile, options in refused:
        assert code(made, "run", profile=profile, analysis=analysis, options=options) == "outside_roots", options


def test_a_query_reaches_no_file(places: tuple[Server, Path, Path]) -> None:
    made, _, outside = places
    for query in (
        f"SELECT * FROM '{outside}/secret.sqlite'",
        f"SELECT * FROM read_text('{outside}/model.toml')",
        f"COPY (SELECT 1) TO '{outside}/new.csv'",
        f"ATTACH '{outside}/new.db'",
    ):
        assert code(made, "sql", profile="run", query=query) == "bad_input", query
    assert sorted(p.name for p in outside.iterdir()) == ["model.toml", "secret.sqlite"]


def test_roots_must_be_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="not a folder"):
        Roots([tmp_path / "missing"])
    monkeypatch.chdir("/")
    with pytest.raises(BadInput, match="give --root"):
        Roots()
    monkeypatch.chdir(tmp_path)
    assert Roots().folders == (tmp_path.resolve(),)


def test_several_roots(tmp_path: Path, traces: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    shutil.copy(traces / "moe4mps.sqlite", second / "one.sqlite")
    made = server(Roots([first, second]))
    assert code(made, "open", profile="one.sqlite") == "answered"
    (items,) = asked(made, "list").structured_content["items"]
    assert items["path"] in ("one.sqlite", str(second / "one.sqlite"))
    assert code(made, "open", profile=items["path"]) == "answered"
