"""Why does a job hang? From the dumps of its flight recorders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.model.flight import Flight
from stepscope.model.result import Result
from stepscope.model.source import SourceInfo

#: Sources that a result lists.
_MOST_SOURCES = 16


def hang(*dumps: str | Path | Sequence[str | Path], fail_on: str | None = None) -> Result:
    """Which rank, which call, why: `dumps` are files, folders or globs of one job's flight-recorder dumps.

    With `fail_on="hung"` a job that hangs raises `GateFailed`, whose `result` is the answer.
    """
    if fail_on not in (None, "hung"):
        raise BadInput(f"fail_on {fail_on}: not a state", "give hung")
    flight = open_dumps(*dumps)
    result = answer(flight)
    if fail_on and result.summary["hung"]:
        raise GateFailed(result.summary["statement"], None, result)
    return result


def open_dumps(*dumps: str | Path | Sequence[str | Path]) -> Flight:
    """The dumps as one table."""
    from stepscope.sources.flight.folder import open_flight

    paths = [p for given in dumps for p in ([given] if isinstance(given, str | Path) else given)]
    return open_flight(*paths)


def answer(flight: Flight) -> Result:
    """The answer; where dumps do not suffice, what is missing."""
    from stepscope.hang.answer import hang as judged

    if not len(flight.calls):
        raise CannotAnswer(
            f"the dumps of {len(flight.dumps)} ranks hold no call",
            "set TORCH_FR_BUFFER_SIZE=2000 before the job starts (`stepscope capture hang --env`)",
        )
    if len(flight.dumps) == 1 and flight.world > 1:
        raise CannotAnswer(
            f"one dump of {flight.world} ranks does not say who waits for whom",
            "collect the dumps of all ranks: `stepscope capture hang`",
        )
    result = judged(flight)
    formats = [("flight-recorder", dump) for dump in flight.dumps[:_MOST_SOURCES]]
    result.sources = [SourceInfo(dump.path, kind, schema=dump.version or None) for kind, dump in formats]
    return result


def page(flight: Flight, result: Result) -> str:
    """The answer as a page with a picture."""
    from stepscope.hang.picture import picture
    from stepscope.hang.verdict import verdict
    from stepscope.render.html.hang import hang_page

    return hang_page(result, picture(flight, verdict(flight)))
