"""Texts are plain English: what a reader stumbled over once does not come back. House rules: CONTRIBUTING.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: "is no X" for "is not an X"; where a comparison or a lack is meant, it is right.
IS_NO = re.compile(
    r"(?<!there )(?<!where )\b(?:is|are|was|were) no "
    r"(?!longer|more|better|faster|slower|wider|larger|less|later|earlier|shorter|smaller)\w+",
    re.IGNORECASE,
)
#: Phrases that are translated, or say nothing, and what to write instead.
TRANSLATED = {
    r"nothing finer is claimed": "differences below that are not significant",
    r"(does|do) not tell": "does not say",
    r"what is worth a word": "notes that are not findings",
    r"take(n|s) as (unknown|no)\b": "treated as unknown",
    r"and nothing above says why": "with no known cause",
    r"is no (chance|finding's)": "is significant",
    r"put down to one of": "attributed to one of",
    r"come round": "recur",
    r"the like of it": "similar",
    r"hung on\b": "was held back by",
    r"what comes of it": "the result",
}


def texts() -> Iterator[tuple[str, str]]:
    """Everything that people read: sources with their help, notes and errors, and pages."""
    folders = (("src/stepscope", "*.py"), ("src/stepscope/skills", "*.md"), ("docs", "*.md"), ("page/src", "*.ts*"))
    for folder, pattern in folders:
        for file in sorted((ROOT / folder).rglob(pattern)):
            yield str(file.relative_to(ROOT)), file.read_text("utf-8")
    for name in ("README.md", "CONTRIBUTING.md"):
        yield name, (ROOT / name).read_text("utf-8")


def found(pattern: re.Pattern[str]) -> list[str]:
    lines = ((name, n, line) for name, text in texts() for n, line in enumerate(text.splitlines(), 1))
    return [f"{name}:{n}: {line.strip()[:160]}" for name, n, line in lines if pattern.search(line)]


def test_nothing_is_no_thing() -> None:
    assert found(IS_NO) == [], 'write "is not a …"'


@pytest.mark.parametrize("phrase", TRANSLATED)
def test_nothing_is_translated(phrase: str) -> None:
    assert found(re.compile(phrase)) == [], f"write {TRANSLATED[phrase]!r}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("it is no profile", True), ("those are no ranks", True), ("there is no profile", False), ("is no longer", False)],
)
def test_what_counts(text: str, wrong: bool) -> None:
    assert bool(IS_NO.search(text)) == wrong
