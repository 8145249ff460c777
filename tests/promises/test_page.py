"""What is of real jobs is taken anew, and what is of simulated ones stays."""

from __future__ import annotations

from pathlib import Path

from promises import page

PAGE = Path(__file__).parents[2] / "docs" / "promises.md"


def test_the_parts_of_real_jobs_are_replaced() -> None:
    old = PAGE.read_text("utf-8").split("<!-- programs -->")[0]
    row = next(line for line in old.splitlines() if line.startswith("| real pairs"))
    text = page.with_real(old, old.replace(row, "| real pairs | 1 |").replace(" real healthy jobs", " healthy jobs"))
    assert text == old.replace(row, "| real pairs | 1 |")
