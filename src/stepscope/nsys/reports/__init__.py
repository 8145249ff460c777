"""The reports of `nsys stats` and the rules of `nsys analyze`, over the model: same rows, order, columns and digits.

    import stepscope
    from stepscope.nsys import reports as nsysreports
    frame = nsysreports.report(stepscope.open("rank0.sqlite"), "cuda_gpu_kern_sum:base")

A report is declared in one of this package's modules (`cuda`, `kernexec`, `nvtx`, `projection`, `nvtxkern`, `host`,
`rules`): its columns, its arguments, and a query over the model's tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.reports.part import Part, part_of
from stepscope.nsys.reports.registry import DEFAULT_REPORTS, all_rules, find, reports
from stepscope.nsys.reports.spec import Args, Report
from stepscope.nsys.reports.units import Units
from stepscope.nsys.reports.view import View

__all__ = ["DEFAULT_REPORTS", "Answer", "Asker", "all_rules", "report", "reports", "rule"]


@dataclass(frozen=True)
class Answer:
    """A report's rows in base units (ns, bytes), columns in order."""

    report: Report
    frame: pl.DataFrame
    notes: list[Note] = field(default_factory=list)


class Asker:
    """Asks one profile for several reports, which share what they read and derive."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._views: dict[Part, View] = {}

    def ask(self, report: Report, args: Args) -> Answer:
        part = part_of(self.profile, {k: v for k, v in args.items() if v is not None})
        view = self._views.setdefault(part, View(self.profile, part))
        frame = report.query(view, args)
        if len(frame.columns) != len(report.columns):
            raise AssertionError(f"{report.name}: {frame.columns} are not its columns")
        return Answer(report, frame, [*self._graphs(report), *self._torch(report, args, frame)])

    def _graphs(self, report: Report) -> list[Note]:
        """nsys knows no CUDA graph that was recorded whole: to its reports the GPU idles meanwhile."""
        if "gpu" not in report.name and "kern" not in report.name:
            return []
        whole = int((self.profile.ops["kind"] == "graph").sum())
        return [noted("graphs-whole/left-out", number=whole)] if whole else []

    def _torch(self, report: Report, args: Args, frame: pl.DataFrame) -> list[Note]:
        """What a torch trace cannot say: it has fewer kinds of records than nsys, and fewer columns in them."""
        if frame.height == 0 or all(s.format != "kineto" for s in self.profile.sources):
            return []
        blank = [c.name for c, s in zip(report.columns, frame.get_columns(), strict=True) if s.null_count() == len(s)]
        notes = []
        if blank:
            notes.append(noted("not-in-torch-traces/columns", blank=", ".join(blank)))
        if report.name.startswith("nvtx") or args.flag("nvtx-name"):
            notes.append(noted("not-in-torch-traces/ranges"))
        if "api" in report.name or "exec" in report.name:
            notes.append(noted("not-in-torch-traces/calls"))
        return notes


def report(profile: Profile, name: str) -> pl.DataFrame:
    """A report as a frame: `name[:argument…]`; headers as in nsys, times in ns, sizes in bytes."""
    return _ask(profile, name, reports(), "report")


def rule(profile: Profile, name: str) -> pl.DataFrame:
    """A rule as a frame: `name[:argument…]`."""
    return _ask(profile, name, all_rules(), "rule")


def _ask(profile: Profile, name: str, among: dict[str, Report], what: str) -> pl.DataFrame:
    if not name:
        raise BadInput(f"no {what} named", f"there are {', '.join(among)}")
    answer = Asker(profile).ask(*find(name, among, what))
    plain = Units(convert=False)
    answer.frame.columns = [plain.header(c) for c in answer.report.columns]
    return answer.frame
