"""A log of pipeline timestamps as a source: its intervals are ranges, its timers the table `timers`.

Ranges are named as a program that annotates itself would name them, so that a log and a profile are one question:
`pp:stage0:A k=7` is [tA0, tA1), `pp:stage0:decode k=7` [tRecv, tDecode), `pp:stage1:B k=7` [tB0, tB1); the marks
`pp:send k=7` and `pp:emit k=7` are moments (` tokens=512` behind them where they are told), and `pp:queue_depth_in=2`
and `pp:queue_depth_out=1` say how deep the queues between the stages were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.note import noted
from stepscope.model.schema import empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform, process_table
from stepscope.sources.pipelinelog.records import LEADER, Log, Process, parse

_INTERVALS = (("pp:stage0:A", "tA0", "tA1"), ("pp:stage0:decode", "tRecv", "tDecode"), ("pp:stage1:B", "tB0", "tB1"))
_MOMENTS = (("pp:send", "tSend"), ("pp:emit", "tEmit"))


class _Range(TypedDict):
    proc: int
    tid: int
    name: str
    start_ns: int
    end_ns: int
    kind: str
    closed: bool


class _Timer(TypedDict):
    proc: int
    row: int
    name: str
    k: int | None
    dur_ns: int
    synchronized: bool
    under: str | None


class PipelineLog:
    """One log; small, so all of it is read at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.quality = Quality()
        self.info = SourceInfo(str(path), "pipeline-log")
        try:
            with path.open(encoding="utf-8-sig") as file:
                log = parse(file, str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: cannot be read ({error})", "give a log of JSON lines") from None
        if not log.stamps and not log.timers:
            raise BadInput(
                f"{path}: neither times of chunks nor block timers", "log k with tA0, tA1, …, or block timers"
            )
        for note in log.notes:
            self.quality.note(note)
        self._ranks = _ranks(log)
        self._tables = {"ranges": self._ranges(log), "timers": self._timers(log)}

    def processes(self) -> pl.DataFrame:
        rows = [
            {"proc": i, "pid": rank, "rank": rank, "rank_from": "log" if isinstance(who, int) else "role"}
            for i, (who, rank) in enumerate(self._ranks.items())
        ]
        return process_table(rows)

    def tables(self) -> frozenset[str]:
        return frozenset(name for name, (frame, _) in self._tables.items() if frame.height)

    def read(self, table: str, part: Part = "core") -> Chunk:
        if table not in self.tables():
            return Chunk(empty(table, part))
        frame, names = self._tables[table]
        return Chunk(conform(frame, table, part), names)

    def _ranges(self, log: Log) -> tuple[pl.DataFrame, pl.Series]:
        rows: list[_Range] = []
        half = backward = 0
        for who, k in dict.fromkeys((who, k) for who, k, _ in log.stamps):
            of = {
                t: log.stamps[who, k, t]
                for _, *times in (*_INTERVALS, *_MOMENTS)
                for t in times
                if (who, k, t) in log.stamps
            }
            chunk = f"k={k} tokens={log.tokens[k]}" if k in log.tokens else f"k={k}"
            for text, first, last in _INTERVALS:
                if first in of and last in of and of[first] <= of[last]:
                    rows.append(self._range(who, f"{text} {chunk}", of[first], of[last]))
                else:
                    half += (first in of) != (last in of)
                    backward += first in of and last in of
            rows += [self._range(who, f"{text} {chunk}", of[t], of[t], "mark") for text, t in _MOMENTS if t in of]
        if half:
            self.quality.note(noted("rows-left-out/half", number=half))
        if backward:
            self.quality.note(noted("rows-left-out/backwards", number=backward))
        if rows:
            at: _Range = {**rows[0], "kind": "mark", "end_ns": rows[0]["start_ns"]}
            rows += [{**at, "name": f"pp:queue_depth_{queue}={depth}"} for queue, depth in log.depths.items()]
        return _table(rows, "ranges")

    def _range(self, who: Process, text: str, start: int, end: int, kind: str = "startend") -> _Range:
        proc = list(self._ranks).index(who)
        return {"proc": proc, "tid": 0, "name": text, "start_ns": start, "end_ns": end, "kind": kind, "closed": True}

    def _timers(self, log: Log) -> tuple[pl.DataFrame, pl.Series]:
        procs = {who: i for i, who in enumerate(self._ranks)}
        rows: list[_Timer] = [
            {
                "proc": procs[t.process],
                "row": i,
                "name": t.block,
                "k": t.k,
                "dur_ns": t.dur_ns,
                "synchronized": t.synchronized,
                "under": t.under,
            }
            for i, t in enumerate(log.timers)
        ]
        return _table(rows, "timers")


def _ranks(log: Log) -> dict[Process, int]:
    """Rank of every process; those that only have a role get the next free numbers, the leader first."""
    processes = dict.fromkeys([who for who, _, _ in log.stamps] + [t.process for t in log.timers])
    ranks: dict[Process, int] = {who: who for who in processes if isinstance(who, int)}
    for role in sorted((who for who in processes if isinstance(who, str)), key=lambda who: (who != LEADER, who)):
        ranks[role] = max([0, *ranks.values()]) + 1
    return dict(sorted(ranks.items(), key=lambda item: item[1]))


def _table(rows: Sequence[Mapping[str, object]], table: str) -> tuple[pl.DataFrame, pl.Series]:
    names: dict[str, int] = {}
    ids = [key for key in ("name", "under") if rows and key in rows[0]]
    coded = [
        {**row, **{key: names.setdefault(str(row[key]), len(names)) for key in ids if row[key] is not None}}
        for row in rows
    ]
    texts = pl.Series("name", list(names), dtype=pl.String)
    if not coded:
        return empty(table), texts
    return canonical(conform(pl.DataFrame(coded, infer_schema_length=None), table, "core"), table), texts
