"""The skills that come with the package: folders of Markdown. `stepscope --help` names the place: import nothing."""

from __future__ import annotations

from pathlib import Path

#: A folder per skill, named as the skill.
SKILLS = Path(__file__).parent.parent / "skills"


def names() -> tuple[str, ...]:
    """Names of all skills, in the order in which one needs them."""
    folders = sorted(path.parent.name for path in SKILLS.glob("*/SKILL.md"))
    first = ("capture-profile", "analyze-profile")
    return tuple(sorted(folders, key=lambda n: (first.index(n) if n in first else len(first), n)))


def files_of(name: str) -> tuple[Path, ...]:
    """The files of a skill, SKILL.md first."""
    texts = (path for path in (SKILLS / name).rglob("*.md") if path.is_file())
    return tuple(sorted(texts, key=lambda path: (path.name != "SKILL.md", path)))


def front_matter(text: str) -> dict[str, str]:
    """What stands between the first two lines of `---`: one `key: value` per line, as all our skills have it."""
    lines = text.splitlines()
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        return {}
    pairs = (line.partition(":") for line in lines[1 : lines.index("---", 1)])
    return {key.strip(): value.strip() for key, _, value in pairs}


def description(name: str) -> str:
    """What a skill does and when it is needed."""
    return front_matter((SKILLS / name / "SKILL.md").read_text("utf-8")).get("description", "")
