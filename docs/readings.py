"""Write the table of readings in diagnoses.md: what `diagnose` and a person say of every trace in ../shared.

The readings are hand-written, in readings.toml. Where ../shared is missing the table stays as it is.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepscope import api
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.range_names import short_range
from stepscope.model.units import about

HERE = Path(__file__).parent
TRACES = HERE.parent.parent / "shared" / "traces"
PAGE = HERE / "diagnoses.md"
BEGIN, END = "<!-- readings -->", "<!-- /readings -->"
HEADER = ("trace", "step", "compute, exposed communication, exposed copies, idle", "first finding", "a person", "agree")
#: Parts of a step that are not compute, as `breakdown` calls them.
LOST = ("comm_exposed", "copy_exposed", "idle")
#: How the files of a trace end; a folder of parquet files is one trace.
ENDINGS = (".sqlite", ".json", ".json.gz", ".nsys-rep", "_pqtdir")


@dataclass(frozen=True)
class Reading:
    """One row of readings.toml."""

    files: tuple[str, ...]
    reading: str
    judged: str
    agree: str
    why: str = ""

    @property
    def name(self) -> str:
        return ", ".join(self.files)

    def paths(self) -> list[Path]:
        return [path for pattern in self.files for path in sorted(_base(pattern).glob(pattern))]


@dataclass(frozen=True)
class Conclusion:
    """What the program says of a trace now."""

    #: the id of the first finding, `none`, or `refused`
    first: str
    share: float | None = None
    statement: str = ""
    step: str = ""
    #: compute, exposed communication, exposed copies, idle, in per cent
    parts: tuple[float, ...] = ()

    @property
    def lost(self) -> float:
        """The share of the step that is not compute, in per cent."""
        return sum(self.parts[1:])


def readings() -> list[Reading]:
    rows = tomllib.loads((HERE / "readings.toml").read_text("utf-8"))["trace"]
    return [Reading(tuple(row.pop("files")), **row) for row in rows]


def _base(pattern: str) -> Path:
    """Where a pattern begins: public traces that were judged wrong once lie beside the others."""
    return TRACES.parent if pattern.startswith("judged/") else TRACES


def traces() -> list[Path]:
    """Every trace there is, but for those inside a folder that is one trace."""
    there = [*sorted(TRACES.rglob("*")), *sorted((TRACES.parent / "judged").glob("*"))]
    return [p for p in there if p.name.endswith(ENDINGS)]


def conclude(reading: Reading) -> Conclusion:
    try:
        profile = api.open(*reading.paths())
        broken, found = (api.analyse(profile, question) for question in ("breakdown", "diagnose"))
    except (BadInput, CannotAnswer):
        return Conclusion("refused")
    rows = found.rows.to_dicts()
    window = found.window[0]
    label = "" if window["kind"] == "capture" else f" `{short_range(window['label'])}`"
    return Conclusion(
        rows[0]["id"] if rows else "none",
        rows[0]["share_pct"] if rows else None,
        found.summary["statement"],
        f"{window['kind']}{label}, {about(found.summary['step_ns'])}",
        tuple(float(broken.summary[f"{part}_pct"]) for part in ("compute", *LOST)),
    )


def row(reading: Reading, now: Conclusion) -> tuple[str, ...]:
    judged = reading.agree + (f": {reading.why}" if reading.why else "")
    if now.first != reading.judged:
        judged = f"not read again since it said {reading.judged}"
    return (
        "<br>".join(f"`{name}`" for name in reading.files),
        now.step,
        ", ".join(f"{part:.0f}" for part in now.parts) + (" %" if now.parts else ""),
        now.first + (f", {now.share:.0f} %" if now.share is not None else ""),
        reading.reading,
        judged,
    )


def lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(HEADER) + " |"
    yield "|" + "---|" * len(HEADER)
    for cells in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def counts(rows: list[tuple[str, ...]]) -> str:
    of = {word: sum(cells[-1].startswith(word) for cells in rows) for word in ("yes", "partly", "no")}
    of["no"] -= (stale := sum(cells[-1].startswith("not read") for cells in rows))
    said = f"Of {len(rows)} conclusions {of['yes']} are the person's, {of['partly']} are partly, {of['no']} are not."
    return said + (f" {stale} are to be read again." if stale else "")


def main() -> int:
    if not TRACES.is_dir():
        print("no ../shared beside the repository: the table stays as it is")
        return 0
    rows = [row(reading, conclude(reading)) for reading in readings()]
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    table = "\n".join([BEGIN, counts(rows), "", *lines(rows), END])
    PAGE.write_text(before + table + rest.split(END)[1], "utf-8")
    print(counts(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
