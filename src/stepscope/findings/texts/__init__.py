"""What findings are called, and what they advise, as an editor reads them; docs/diagnoses.md shows them.

What stands in braces is filled in by the detector. Where one says several things, the second has a name after `/`.
"""

from __future__ import annotations

from stepscope.findings.texts.advice import ADVICE
from stepscope.findings.texts.titles import TITLES

__all__ = ["ADVICE", "TITLES", "advice", "title"]


def title(key: str, /, **values: object) -> str:
    """What is wrong, in a line."""
    return TITLES[key].format_map(values)


def advice(key: str, /, **values: object) -> str:
    """What to try."""
    return ADVICE[key].format_map(values)
