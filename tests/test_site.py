"""The site of docs/: it builds without a warning, its links lead somewhere, and what it shows was run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import click
import pytest

from commandlines import every_option, parse
from marks import slow_unless

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def module(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


build_site, shown, measurements = module("build_site"), module("shown"), module("measurements")


# -- what it shows -----------------------------------------------------------------------------------------------------


#: Pages whose commands take seconds each: a cluster, several nodes, exports.
LONG = ("cluster.md", "multi-node.md", "share-a-trace.md")


def part(page: Path) -> str:
    """Pages of a folder run together: they share traces."""
    return "longer" if page.name in LONG else shown.place(page).parts[0]


@pytest.mark.parametrize("name", slow_unless(lambda name: name == "howto", sorted({part(p) for p in shown.pages()})))
def test_what_pages_show_is_what_their_commands_print(name):
    ran = dict(shown.refreshed(lambda page: part(page) == name))
    assert ran
    stale = [page.name for page, text in ran.items() if page.read_text("utf-8") != text]
    assert not stale, "run `make docs`"


#: Figures in prose that no command of their page prints: thresholds, round numbers, sums of a reader.
OTHERWISE = {
    "repository/README.md": {"19.1 ms"},
    "tutorial.md": {"23.1 %"},
    "lab/1-capture.md": {"150 ms", "40 ms"},
    "lab/2-timeline.md": {"90 %", "95 %", "153 ms", "2.7 ms", "0.8 ms"},
    "lab/3-host.md": {"20 µs", "20 ms"},
    "lab/4-kernel-and-memory.md": {"13.1 ms", "300 MiB"},
    "lab/5-conclusion.md": {"162.6 ms", "57 %", "1 %"},
    "howto/did-it-help.md": {"3 %"},
    "howto/roof.md": {"80 %", "90 %", "1 %", "44.7 µs"},
    "howto/what-first.md": {"2 %"},
    "howto/why-idle.md": {"125 µs"},
}


@pytest.mark.parametrize("page", [shown.place(page).as_posix() for page in shown.pages()])
def test_figures_in_prose_are_those_of_the_output(page):
    text = (DOCS / page if page != "repository/README.md" else ROOT / "README.md").read_text("utf-8")
    figure = r"(\d[\d,]*(?:\.\d+)?) ?(ms|µs|ns|%|GB/s|GiB|MiB|TFLOP/s|TFLOP)(?![\w/])"
    blocks = " ".join(re.findall(r"^```console\n(.*?)^```", text, re.S | re.M))
    printed = [(float(n.replace(",", "")), unit) for n, unit in re.findall(figure, blocks)]
    prose = re.sub(r"^```.*?^```|`[^`]*`|<!--.*?-->", "", text, flags=re.S | re.M)
    unknown = {
        f"{n} {unit}"
        for n, unit in re.findall(figure, prose)
        if not any(u == unit and abs(v - float(n.replace(",", ""))) <= _half(n) for v, u in printed)
    }
    assert unknown == OTHERWISE.get(page, set())


def _half(number: str) -> float:
    """A figure may be rounded: half of its last digit."""
    return 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9


def test_every_question_is_in_the_index():
    index = (DOCS / "howto" / "index.md").read_text("utf-8")
    for page in (DOCS / "howto").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index


def test_other_command_lines_are_understood():
    lines = 0
    for page in PAGES:
        for block in re.findall(r"^ *```(?:bash|sh)?\n(.*?)^ *```", page.read_text("utf-8"), re.S | re.M):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.split(r" [|>] | && ", line.strip().removeprefix("$ "))[0]
                if command.startswith("stepscope "):
                    parse(command)
                    lines += 1
    assert lines > 40


@pytest.mark.parametrize("page", ["tutorial.md", "symptoms.md", "index.md", "lab", "howto"])
def test_options_in_prose_exist(page):
    path = DOCS / page
    known = every_option() | {"--help"}
    for file in [path] if path.is_file() else sorted(path.glob("*.md")):
        prose = re.sub(r"^```.*?^```|<!--.*?-->", "", file.read_text("utf-8"), flags=re.S | re.M)
        for code in re.findall(r"`([^`]*)`", prose):
            if not code.startswith(("nsys", "ncu", "torch", "pip", "salloc")):
                assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)) <= known, f"{file.name}: {code}"


def test_directives():
    block = "<!-- exit 3 -->\n<!-- show b ... c | e -->\n```console\n$ echo $'a\\nb\\nc\\nd\\ne'; exit 3\nold\n```"
    match = shown._BLOCK.search(f"{block}\n")
    assert match is not None
    assert shown._run_block(match, "page") == block.replace("old", "…\nb\nc\n…\ne")
    with pytest.raises(RuntimeError, match="ended with 3, not 0"):
        shown._run_block(shown._BLOCK.search(block.replace("exit 3 -->", "exit 0 -->", 1)), "page")
    with pytest.raises(RuntimeError, match="no line with 'z'"):
        shown._run_block(shown._BLOCK.search(block.replace("show b", "show z")), "page")


def test_logs_of_other_programs_are_not_shown():
    """A cluster's workers warn where the machine is busy: what a page shows must not depend on that."""
    script = "python3 -c 'import sys; print(1); print(2, file=sys.stderr); sys.exit({})'"
    assert shown.execute(script.format(0)) == (0, "1\n")
    assert shown.execute(script.format(3)) == (3, "1\n2\n")
    assert "no such file" in shown.execute(f"{sys.executable} -m stepscope info nothere.sqlite | cat")[1]


def test_symptoms_ask_what_there_is():
    rows = re.findall(r"^\| (?!symptom|-)(.*) \|$", (DOCS / "symptoms.md").read_text("utf-8"), re.M)
    asked = [code for row in rows for code in re.findall(r"`([^`]+)`", row.split(" | ")[1])]
    assert len(asked) > 30
    for command in asked:
        try:
            parse(f"stepscope {command}")
        except click.MissingParameter:
            parse(f"stepscope {command} PROFILE")


def test_measurements_name_commands_that_exist():
    for measurement in measurements.MEASUREMENTS:
        parse(f"stepscope {measurement.capture} -- COMMAND")
        for command in measurement.commands:
            parse(f"stepscope {command} PROFILE")
    recorded = {want for measurement in measurements.MEASUREMENTS for want in measurement.wants}
    assert recorded == set(measurements.WANTS), "every want answers a question"
    for want, about in measurements.WANTS.items():
        commands = {c for m in measurements.MEASUREMENTS if want in m.wants for c in m.commands}
        assert set(re.findall(r"`([^`]+)`", about.gives)) <= commands, want


# -- the site ----------------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """What a page links to, what it loads, and the places within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("img", "script", "source") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "icon"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    """Pages by their files."""
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("no zensical here")
    work = tmp_path_factory.mktemp("site")
    build_site.prepare(work)
    command = [*build_site.ZENSICAL, "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arning" not in done.stdout + done.stderr
    return {page: Links(page.read_text("utf-8")) for page in (work / "html").rglob("*.html") if page.name != "404.html"}


@pytest.mark.slow
def test_links_lead_to_pages_and_places(built):
    assert len(built) > 40
    for page, found in built.items():
        for link in (*found.links, *found.loaded):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.name}: {link}"
            place = unquote(parts.fragment)
            if place and target in built and not place.startswith("__"):
                assert place in built[target].ids, f"{page.name}: {link}"


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(built):
    for page, found in built.items():
        assert not [link for link in found.loaded if urlsplit(link).netloc], page.name


@pytest.mark.slow
def test_every_page_is_in_the_navigation(built):
    home = next(page for page in built if page.name == "index.html" and page.parent.name == "html")
    listed = {(home.parent / urlsplit(link).path).resolve() for link in built[home].links}
    linked = {page for page in built if "repository" in page.parts}
    assert set(built) - linked - {home} <= listed


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("text\n- a\n- b", "text\n\n- a\n- b"),
        ("- a\n  more\n\n  | t |\n\ntext", "- a\n    more\n\n    | t |\n\ntext"),
        ("- a\n  - b\n    more\n- c", "- a\n    - b\n        more\n- c"),
        ("1. a\n\n   ```\n   - x\n     y\n   ```\n2. b", "1. a\n\n    ```\n    - x\n      y\n    ```\n2. b"),
        ("```\ntext\n- a\n```", "```\ntext\n- a\n```"),
        ("- a\nlazy\n\ntext", "- a\n    lazy\n\ntext"),
    ],
)
def test_lists_as_the_site_reads_them(source, made):
    assert build_site.with_lists(source) == f"{made}\n"


def test_code_in_tables_as_the_site_reads_it():
    source = "| `a\\|b` | c \\| d |\n`e\\|f`\n"
    assert build_site.with_pipes(source) == "| `a|b` | c \\| d |\n`e\\|f`\n"


def test_navigation_names_pages_once():
    pages = ["a.md", "b.md", "x/1.md", "x/index.md", "x/2.png"]
    nav = [{"A": ["b.md", "*"]}, {"X": ["x/index.md", "x/*"]}]
    assert build_site.navigation(nav, pages) == [{"A": ["b.md", "a.md"]}, {"X": ["x/index.md", "x/1.md"]}]


def test_links_out_of_the_folder_lead_to_copies():
    page = DOCS / "decisions" / "0014-report-page.md"
    text = "[a](../report.md#x) [b](../../README.md) [c](https://d) [e](#f)"
    assert (
        build_site.with_links(text, page) == "[a](../report.md#x) [b](../repository/README.md) [c](https://d) [e](#f)"
    )
