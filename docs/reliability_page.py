"""docs/reliability.md: the figures of the last long runs, as tests/reliability/results/*.json has them.

Every suite writes a file of its own there; a section whose file is missing is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "tests" / "reliability" / "results"

Table = Callable[[tuple[str, ...], Iterable[tuple[str, ...]]], Iterator[str]]

#: What users call the kinds of input.
KINDS = {
    "sqlite": "nsys SQLite: pages, schema, values of every type",
    "parquet": "nsys parquet folder",
    "kineto": "torch.profiler JSON: bytes and structure",
    "gzip": "the same as damaged gzip",
    "pftrace": "`.pftrace`, of torch and exported",
    "chrome": "exported Chrome JSON",
    "folder": "exported Parquet folder",
    "ncu-csv": "CSV of Nsight Compute",
    "ncu-rep": "`.ncu-rep`",
    "snapshot": "memory snapshot (pickle)",
    "flight": "dumps of the flight recorder, and what lies beside them",
    "log": "pipeline log (JSON lines)",
    "compile-log": "log of torch.compile",
    "labels": "`--labels` (TOML)",
    "limits": "`--limits` (TOML)",
    "model": "`--model` (TOML)",
    "taxonomy": "`--taxonomy` (TOML)",
    "baseline": "baseline of `gate`",
    "manifest": "manifest of a capture",
    "cache": "cache file, damaged or forged",
}


#: What was measured of a server for agents.
AGENTS = {
    "progress": "the first word on how far a call is",
    "cancelled": "a call is cancelled: until rest",
    "killed": "its client is killed: until rest",
    "beside": "another client asks ten times meanwhile: the longest answer",
    "ended": "SIGTERM meanwhile: until server and workers have ended",
}


def page(table: Table, results: Path = RESULTS) -> Iterator[str]:
    yield from (
        "# Reliability",
        "",
        "What was tried to break stepscope, and how it ended: the figures of the last long runs. They are made by",
        "`make fuzz` and the scripts of `tests/reliability`.",
        "",
    )
    for name, section in (
        ("fuzz", _fuzz),
        ("good", _good),
        ("relations", _relations),
        ("kills", _kills),
        ("scale", _scale),
        ("soak", _soak),
        ("agents", _agents),
        ("snapshots", _snapshots),
        ("runs", _runs),
    ):
        file = results / f"{name}.json"
        if file.is_file():
            yield from section(json.loads(file.read_text("utf-8")), table)
            yield ""


def _runs(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Runs with one fault or none"
    yield ""
    yield f"{found['runs']:,} simulated runs of {found['steps']} steps, of one rank or two, on hosts that are late at"
    yield "random: each has spikes at random or every few steps, checkpoints or evaluations within steps or between"
    yield "them, a second kind of steps, drift, or nothing. `diagnose` is asked once, and the seeds were new to it."
    yield ""
    yield from table(
        ("what must be", "runs"),
        [
            (
                "the fault is the first finding of the run, and its cost within 25 %",
                f"{found['named']} of {found['faults']}",
            ),
            ("a healthy run has no finding of the run", f"{found['healthy'] - found['accused']} of {found['healthy']}"),
        ],
    )
    yield f"The same runs again: `python tests/reliability/runs.py full {found['first_seed']}`."


def _fuzz(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Damaged input"
    yield ""
    asked = sum(found["questions"].values())
    yield f"{found['inputs']:,} damaged inputs in one run of {found['minutes']:g} minutes, each a good one with one to"
    yield f"three defects, and {asked:,} questions about them; of about one profile in fifty, all there are."
    yield ""
    rows = [
        ("unexpected errors", f"{found['unexpected']:,}"),
        ("over 30 seconds of a processor", f"{found['hang']:,}"),
        ("figures that cannot be (negative, above 100 %, parts that are not the whole)", f"{found['impossible']:,}"),
        ("figures that changed in silence", f"{found['silent']:,}"),
    ]
    yield from table(("what must not be", "inputs"), rows)
    same, told = (found["effects"].get(effect, 0) for effect in ("same", "told"))
    yield f"Of {same:,} inputs only what nobody reads was changed: their answers must be those of the good input."
    yield f"{told:,} have something that no profiler writes, or that a checksum tells: an answer with other figures"
    yield "must say so. The rest may be right for all anyone can know: there, figures must only be possible."
    yield ""
    kinds = [
        (KINDS.get(kind, kind), *(f"{n:,}" for n in (sum(ended.values()), ended["answered"], ended["refused"])))
        for kind, ended in found["kinds"].items()
    ]
    yield from table(("input", "tried", "answered", "refused in one line"), kinds)
    again = f"--count {found['inputs']} {found['options']}"
    yield f'`make fuzz ARGS="{again}"` does the same again; `--only INDEX` makes one of them.'


def _good(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Good input, any options"
    yield ""
    yield f"{found['questions']:,} questions about {found['traces']} undamaged traces in one run of"
    yield f"{found['minutes']:g} minutes. Options are drawn from what the commands declare: windows inside the capture,"
    yield "at its edges and outside, of one op, of one instant; ranks, groupings, sorts, limits, formats, labels; most"
    if found.get("declared"):
        pairs = f"{found['drawn']:,} of {found['declared']:,}"
        yield f"through Python, a third as command lines. Those had {pairs} commands and options of"
        yield "commands, which are all but servers (`serve`, `mcp`) and the demo."
    else:
        yield "through Python, some as command lines of every command."
    yield ""
    rows = [
        ("unexpected errors", f"{found['unexpected']:,}"),
        ("over 30 seconds of a processor", f"{found['slow']:,}"),
        ("figures that cannot be (negative, above 100 %, parts that are not the whole)", f"{found['impossible']:,}"),
    ]
    yield from table(("what must not be", "questions"), rows)
    ended = found["ended"]
    yield f"{ended['answered']:,} were answered, of {ended['cannot']:,} the trace lacks what they need,"
    yield f"{ended['refused']:,} were refused in one line."
    if found.get("since"):
        yield str(found["since"])
    yield "The same questions again:"
    yield f'`make fuzz ARGS="--good --count {found["questions"]} {found["options"]}"`.'


def _relations(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Changes of which the effect is known"
    yield ""
    yield f"Each change was made to {found['traces']} nsys exports, and every command asked before and after:"
    yield "questions, nsys's reports, rules and recipes, `sql`, `compare`, `gate`, `report`, `export`, `verify`."
    yield "Rows and figures must be the same, but for what the change itself predicts (shifted times, other numbers)."
    yield "Traces of one process cannot be split, and those without steps not be cut to one."
    yield ""
    rows = [(name, f"{of['answers']:,}", f"{of['violations']:,}") for name, of in found["relations"].items()]
    yield from table(("change", "answers compared", "violations"), rows)
    if found.get("since"):
        yield str(found["since"])
    yield '`make fuzz ARGS="--relations"` tries them again.'


def _agents(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Agents"
    yield ""
    yield "A client of the official package calls `stepscope mcp`: a query that does not look whether it is to stop."
    yield "Seconds until what is said; at rest, server and workers take no more processor time."
    if found.get("since"):
        yield str(found["since"])
    yield ""
    transports = found["transports"]
    every = list(dict.fromkeys(name for times in transports.values() for name in times))
    rows = [
        (AGENTS.get(name, name), *(f"{times[name]:.2f}" if name in times else "" for times in transports.values()))
        for name in every
    ]
    yield from table(("what", *transports), rows)


def _kills(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Killed"
    yield ""
    yield f"{found['runs']:,} runs were ended by a signal, each at another moment: captures, reports, baselines."
    yield ""
    rows = [
        ("files damaged or half written", f"{found['damaged']:,}"),
        ("processes left running", f"{found['left_processes']:,}"),
        ("files left behind", f"{found['debris']:,}"),
        ("another exit status than documented", f"{found['wrong_exit']:,}"),
    ]
    yield from table(("what must not be", "runs"), rows)


def _scale(found: dict[str, Any], table: Table) -> Iterator[str]:
    yield "## Large"
    yield ""
    yield f"Inputs as large as they get, and built to be slow; {found['hangs']:,} did not end."
    yield ""
    rows = [
        (
            case["what"],
            str(case["size"]),
            f"{case['cpu_s']:.1f} s",
            _number(case.get("ratio")),
            f"{case['peak_mb']:,.0f} MB",
        )
        for case in found["cases"]
    ]
    yield from table(("what", "size", "processor", "ratio", "most memory"), rows)


def _soak(found: dict[str, Any] | list[dict[str, Any]], table: Table) -> Iterator[str]:
    yield "## Long"
    yield ""
    yield "Servers under as many requests as hours of use bring, with slow clients and dropped connections among them."
    yield ""
    rows = [
        (
            f"`{each['served']}`",
            f"{each['requests']:,}",
            f"{each['minutes']:g}",
            f"{each['rss_start_mb']:,.0f} → {each['rss_end_mb']:,.0f} MB",
            f"{each['fds_start']} → {each['fds_end']}",
            f"{each['errors']:,}",
        )
        for each in (found if isinstance(found, list) else found.get("runs", [found]))
    ]
    yield from table(("server", "requests", "minutes", "memory", "descriptors", "errors"), rows)


def _snapshots(found: dict[str, Any], table: Table) -> Iterator[str]:
    files, whole = (sum(repository[key] for repository in found.values()) for key in ("files", "whole"))
    yield "## Memory of programs that others wrote"
    yield ""
    yield f"Snapshots of PyTorch's allocator in public repositories: {files}, all of them read. Of {whole} of {files}"
    yield "the ledger is whole: its parts sum to what is reserved, at most 3 % are unknown, and each part that the"
    yield (
        "program's own code gives the size of (parameters, their gradients, their states) is right within 3 %. "
        "The one that is"
    )
    yield "not holds numbers drawn at random, whose blocks do not fit into their segments; `memory` says so."
    yield "`bench/public_snapshots.py` makes the table from clones."
    yield ""
    parts = tuple(dict.fromkeys(part for repository in found.values() for part in repository["parts"]))
    rows = [
        (
            name,
            f"{each['files']}",
            f"{each['whole']}",
            *(f"{each['parts'][part]['most_pct']:.2f} %" if part in each["parts"] else "" for part in parts),
        )
        for name, each in found.items()
    ]
    yield from table(("repository", "snapshots", "whole", *(f"{part}, most wrong" for part in parts)), rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
