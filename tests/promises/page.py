"""docs/promises.md: the page of promises and what became of them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from promises.calibrate import held
from promises.pair import MATERIAL, MISSED, Figures, Healthy, Pair, Said, figures

HERE = Path(__file__).parent

METHOD = f"""# Promises, and what became of them

Written by `make promises ARGS=full`; not by hand. `diagnose` says of each finding what the step could save. Here
is what it said of jobs with a known fault, beside what taking that fault away really gave.

## Method

1. A pair is two jobs that differ in one thing: the fault. The faulty one is captured and diagnosed, options by default.
2. The promise is `recoverable_ns` of the finding that names the fault, wherever it stands; 0 where none names it.
3. The truth is the median step's length with the fault less that without it. *Unprofiled*: both were timed without a
   profiler, which is what a user gets. *Before recording*: by steps of the runs before the profiler recorded, those of
   both tools together. *Profiled*: the difference of two captures. *Another machine*: timed on another H200 than
   captured, which can be far off: the waits of `moe host-syncs` cost 19 ms of a step on one machine and 26 on another,
   the calls of `moe alloc` 41 and 48.
4. ± is the standard error of the truth; without it, each side is a single run.
5. The error is (promise − truth) ÷ truth: −100 % where the fault was not named, positive where too much was promised.
6. *Inside*: the truth lies in the finding's 90 % interval, `recoverable_low_ns` to `recoverable_high_ns`. Its width is
   from these pairs (`findings/calibration.toml`): a real pair is judged by the width that all *other* jobs give.
7. *First*: the fault's finding comes first, on the right ranks. Asked for only where the fault costs
   {100 * MATERIAL:g} % of the step or more, and more than anything that is wrong with the twin.
8. Simulated jobs (`stepscope simulate`) are run again without the fault, with the same seed: their truth is exact.
   Every fourth is written as torch.profiler traces, the others as nsys exports.
9. Errors count pairs whose fault costs {100 * MATERIAL:g} % of the step or more.
10. Healthy twins show what is promised where there is nothing to fix.
"""


def page(
    pairs: Sequence[Pair], healthy: Sequence[Healthy], made: Sequence[Pair], twins: Sequence[Healthy], scale: str
) -> str:
    inside = held(list(pairs), list(made))
    pairs = [replace(p, inside_others=inside.get(i)) for i, p in enumerate(pairs)]
    parts = [METHOD, _verdict(pairs, made, healthy, twins, scale)]
    if pairs:
        parts += [_real(pairs), _misses(pairs)]
    if made:
        parts += [_simulated(made), _simulated_misses(made)]
    parts.append(_healthy(healthy, twins))
    return "\n".join(parts)


def _verdict(
    pairs: Sequence[Pair], made: Sequence[Pair], healthy: Sequence[Healthy], twins: Sequence[Healthy], scale: str
) -> str:
    rows = [("real pairs", figures(pairs)), (f"simulated pairs ({scale})", figures(made))]
    text = "## In short\n\n" + _table(
        ["", "n", "median error", "9 of 10 within", "worst", "over 30 %", "inside the interval", "named first"],
        [
            [what, *_cells(f), str(sum(abs(p.error) > MISSED and p.material for p in chosen)), *_more(f)]
            for (what, f), chosen in zip(rows, (pairs, made), strict=True)
            if f
        ],
    )
    wrong = [(h, h.false) for h in (*healthy, *twins) if h.false]
    jobs = f"{len(wrong)} of {len(healthy) + len(twins)} healthy jobs"
    said = f"{jobs} have a finding that is certain of its cause, names a fault and is not known to deliver."
    return f"{text}\n{said}\n"


def _cells(f: Figures) -> list[str]:
    return [str(f.n), _pct(f.median), _pct(f.p90), _pct(f.worst)]


def _more(f: Figures) -> list[str]:
    coverage = "not stated" if f.coverage is None else f"{f.covered} of {f.stated} ({_pct(f.coverage)})"
    return [coverage, f"{f.first} of {f.must}"]


def _real(pairs: Iterable[Pair]) -> str:
    lines = [
        [
            p.job,
            p.tool,
            p.fault,
            f"{p.step_ns / 1e6:.0f}{'' if p.real_step_ns is None else f' ({p.real_step_ns / 1e6:.0f})'}",
            _first(p),
            _promise(p.promise),
            f"{p.truth_ns / 1e6:.1f}{'' if p.truth_pm_ns is None else f' ± {p.truth_pm_ns / 1e6:.1f}'}",
            p.note,
            f"{100 * p.error:+.0f}" if p.material else "–",
            {True: "yes", False: "**no**", None: "–"}[p.inside],
        ]
        for p in pairs
    ]
    head = [
        "job",
        "tool",
        "fault",
        "step, ms",
        "first finding",
        "promised, ms",
        "gave, ms",
        "truth",
        "error, %",
        "inside",
    ]
    return (
        "## Real pairs\n\nAll on one H200. The step is what `diagnose` looked at; in brackets, without a profiler.\n\n"
        + _table(head, lines)
    )


def _first(p: Pair) -> str:
    if p.first is None:
        return "**none**"
    if p.named_first:
        return p.first.id
    said = f"{p.first.id} on {p.first.ranks}, {p.first.ns / 1e6:.1f} ms"
    return f"**{said}**" if p.must_be_first else said


def _promise(s: Said | None) -> str:
    if s is None:
        return "nothing"
    between = "" if s.low_ns is None or s.high_ns is None else f" ({s.low_ns / 1e6:.1f} to {s.high_ns / 1e6:.1f})"
    return f"{s.ns / 1e6:.1f}{between}, {s.cause}"


def _misses(pairs: Iterable[Pair]) -> str:
    reasons = tomllib.loads((HERE / "reasons.toml").read_text("utf-8"))
    missed = [p for p in pairs if p.missed]
    lines = [
        f"- **{p.job}, {p.tool}**: promised {p.promised_ns / 1e6:.1f} of {p.truth_ns / 1e6:.1f} ms, {_first(p)} first. "
        + _under(p)
        + reasons.get(p.job, "The reason is not known.")
        for p in missed
    ]
    return "### Misses\n\nOff by more than 30 %, or not named first.\n\n" + ("\n".join(lines) or "None.") + "\n"


def _under(p: Pair) -> str:
    """What the fault costs under the profiler, where that is another figure."""
    if p.profiled_ns is None or p.note == "profiled" or abs(p.profiled_ns - p.truth_ns) < 0.1 * abs(p.truth_ns):
        return ""
    return f"Under the profiler it costs {p.profiled_ns / 1e6:.1f} ms. "


def _simulated(made: Sequence[Pair]) -> str:
    lines = []
    for group in sorted({p.group for p in made}):
        of = [p for p in made if p.group == group]
        f = figures(of)
        lines.append([group, str(len(of)), *([*_cells(f), *_more(f)] if f else ["0", *["–"] * 5])])
    head = [
        "fault",
        "jobs",
        "material",
        "median error",
        "9 of 10 within",
        "worst",
        "inside the interval",
        "named first",
    ]
    by_tool = [
        [tool, str(len(of)), *([*_cells(f), *_more(f)] if (f := figures(of)) else ["0", *["–"] * 5])]
        for tool in ("nsys", "torch")
        if (of := [p for p in made if p.tool == tool])
    ]
    by_schedule = [
        [schedule, str(len(of)), *([*_cells(f), *_more(f)] if (f := figures(of)) else ["0", *["–"] * 5])]
        for schedule in sorted({p.job.split()[0] for p in made})
        if (of := [p for p in made if p.job.split()[0] == schedule])
    ]
    return (
        f"## Simulated pairs\n\n{len(made)} jobs.\n\n"
        + _table(head, lines)
        + "\n"
        + _table(["schedule", *head[1:]], by_schedule)
        + "\n"
        + _table(["written as", *head[1:]], by_tool)
    )


def _simulated_misses(made: Iterable[Pair]) -> str:
    """Alike ones together: the same fault on the same schedule, with the same first finding."""
    missed = [p for p in made if p.missed]
    reasons = tomllib.loads((HERE / "reasons.toml").read_text("utf-8"))
    kinds = Counter(map(_kind, missed))
    lines = []
    for kind, n in sorted(kinds.items()):
        worst = max((p for p in missed if _kind(p) == kind), key=lambda p: abs(p.error))
        figure = f"{worst.promised_ns / 1e6:.2f} of {worst.truth_ns / 1e6:.2f} ms"
        known = (reasons.get(f"simulated {key}") for key in (f"{kind[0]} {kind[1]}", kind[0]))
        reason = next(filter(None, known), "not known")
        lines.append([*kind, str(n), f"`{worst.fault}` on {worst.job}: {figure}", reason])
    head = ["fault", "schedule", "tool", "first finding", "jobs", "the worst", "reason"]
    table = _table(head, lines) if lines else "None.\n"
    return f"### Misses among simulated jobs\n\nOff by more than 30 %, or not named first ({len(missed)}).\n\n{table}"


def _kind(p: Pair) -> tuple[str, str, str, str]:
    return p.group, p.job.split()[0], p.tool, p.first.id if p.first else "none"


def _healthy(healthy: Sequence[Healthy], twins: Sequence[Healthy]) -> str:
    lines = []
    for h in healthy:
        said = [f"{s.id} {s.ns / 1e6:.1f} ms, {s.cause}" for s in h.said if s not in h.false]
        false = [f"**{s.id} {s.ns / 1e6:.1f} ms**" for s in h.false]
        known = "; ".join(f"{i}: {how}" for i, how in h.delivers.items())
        lines.append([h.job, h.tool, f"{h.step_ns / 1e6:.1f}", "; ".join(false), "; ".join(said), known])
    head = ["job", "tool", "step, ms", "certain, not known to deliver", "other findings", "known to deliver"]
    text = "## Healthy twins\n\n" + (_table(head, lines) if lines else "")
    if not twins:
        return text
    wrong = [(h, s) for h in twins for s in h.false]
    other = Counter(s.id for h in twins for s in h.said if s not in h.false)
    ids = ", ".join(f"{i} in {n}" for i, n in sorted(other.items())) or "none"
    listed = "".join(f"- {h.job}, {h.tool}: {s.id}, {s.ns / 1e6:.2f} of {h.step_ns / 1e6:.1f} ms\n" for h, s in wrong)
    jobs = len({h.job + h.tool for h, _ in wrong})
    said = f"Of {len(twins)} simulated jobs without a fault {jobs} are told of one as certain."
    return f"{text}\n{said} Findings that are not of a planted fault, or less sure: {ids}.\n\n{listed}"


def _pct(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def with_real(page: str, text: str) -> str:
    """The page with what is of real jobs taken from `text`, a page without simulated ones."""
    old, new = _sections(page), _sections(text)
    rows = [line for line in new["In short"].splitlines() if line.startswith("| real pairs")]
    healthy = next(line for line in new["In short"].splitlines() if " healthy jobs have a finding" in line)
    short = [line for line in old["In short"].splitlines() if " healthy jobs have a finding" not in line]
    old["In short"] = "\n".join(rows[0] if line.startswith("| real pairs") else line for line in short).rstrip()
    old["In short"] += f"\n\n{healthy.replace(' healthy jobs', ' real healthy jobs')}\n\n"
    simulated = [line for line in old["Healthy twins"].splitlines() if " simulated jobs without a fault" in line]
    real = new["Healthy twins"].split("\nOf ")[0].rstrip()
    old |= {"Method": new["Method"], "Real pairs": new["Real pairs"]}
    old["Healthy twins"] = "\n".join([real, "", *simulated, "", ""])
    return "## ".join([old.pop(""), *(f"{title}\n{body}" for title, body in old.items())])


def _sections(page: str) -> dict[str, str]:
    """Sections by their titles, up to the part of programs; what comes before the first has none."""
    head, *rest = page.split("<!-- programs -->")[0].split("\n## ")
    parts = [part.partition("\n") for part in rest]
    return {"": f"{head}\n"} | {title: f"{body}\n" for title, _, body in parts}
