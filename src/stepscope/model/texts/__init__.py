"""Every note that an answer may carry, as an editor reads them; docs/notes.md is written from these tables."""

from __future__ import annotations

from typing import Literal

from stepscope.model.texts import analysis, reading, recording

#: info: context, or what was inferred. warning: figures mean less than they seem to. loss: records are missing.
Severity = Literal["info", "warning", "loss"]
#: Where it comes from: the profiler's recording, our reading of it, or the analysis.
Origin = Literal["recording", "import", "analysis"]
_Texts = tuple[tuple[Severity, dict[str, str]], ...]

_BY_ORIGIN: tuple[tuple[Origin, _Texts], ...] = (
    ("recording", (("info", recording.INFO), ("warning", recording.WARNING), ("loss", recording.LOSS))),
    ("import", (("info", reading.INFO), ("warning", reading.WARNING), ("loss", reading.LOSS))),
    ("analysis", (("info", analysis.INFO), ("warning", analysis.WARNING), ("loss", analysis.LOSS))),
)
#: By key (a code, or `code/case`): the text, its severity, and its origin.
NOTES: dict[str, tuple[str, Severity, Origin]] = {
    key: (text, severity, origin)
    for origin, tables in _BY_ORIGIN
    for severity, texts in tables
    for key, text in texts.items()
}
