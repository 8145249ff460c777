"""Documents that say what the code says. `make docs` refreshes them."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from stepscope.cli.group import grouped

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [
        *("cli.md", "guide.md", "model.md", "measure.md", "reports.md", "recipes.md", "diagnoses.md", "thresholds.md"),
        "../page/src/messages.ts",
    ],
)
def test_generated_pages_are_fresh(generate, page):
    assert (ROOT / "docs" / page).read_text("utf-8") == generate.PAGES[page](), "run `make docs`"


def test_the_readme_fits_a_screen_or_two():
    assert len(README.splitlines()) <= 95


def test_the_badges_are_true():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (described,) = re.findall(r"\[!\[(.*?)\]\(docs/images/badges\.svg\)\]", README)
    texts = re.findall(r"<text[^>]*>(.*?)</text>", (ROOT / "docs/images/badges.svg").read_text("utf-8"))
    told = dict(zip(texts[::2], texts[1::2], strict=True))
    python = project["requires-python"].removeprefix(">=")
    assert (told["version"], told["python"]) == (project["version"], f"{python}+")
    assert project["license"].startswith(told["licence"])
    assert (
        described
        == f"version {told['version']}, Python {python} or newer, licence {told['licence']}, promises "
        + (told["promises"])
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert not target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"(?<!\w)/(work|home|root|Users)/", page.read_text("utf-8")), page.name


def test_every_command_is_documented():
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for _, names in grouped():
        for name in names:
            assert f"\n### {name}\n" in text


def test_how_we_know_has_the_figures_of_its_sources():
    """Each figure of a row stands on the page that the row links: whoever writes that page anew mends this one."""
    rows = re.findall(
        r"^\| .* \| ([^|]*) \| \[[^]]*\]\(([\w.]+)\) \|$", (ROOT / "docs/how-we-know.md").read_text(), re.M
    )
    assert len(rows) >= 10
    looked = 0
    for figures, page in rows:
        source = (ROOT / "docs" / page).read_text("utf-8")
        for figure in re.findall(r"\d[\d,]*(?:\.\d+)?(?: %| of \d+)?", figures):
            looked += 1
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d|[.,]\d)", source), (page, figure)
    assert looked >= 20
