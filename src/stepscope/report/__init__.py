"""The report: what a profile says, concluded and shown, as one page without a network or as Markdown."""

from __future__ import annotations

from stepscope.report.asker import Asker
from stepscope.report.gather import Report, gather

__all__ = ["Asker", "Report", "gather"]
