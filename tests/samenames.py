"""Whether `stragglers` and `diagnose` name the same ranks and links: traces of several ranks, and what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultcases import MESHES, scenario
from stepscope import api
from stepscope.errors import CannotAnswer
from stepscope.model.heading import numbers
from stepscope.model.result import Result
from stepscope.simulate.job.scenario import Scenario

#: Findings about ranks that compute longer, and about hosts.
COMPUTE = {"straggler", "expert-imbalance", "compute-imbalance"}
HOST = {
    *("late-node", "launch-bound", "data-stall", "host-sync", "tiny-kernels"),
    *("allocator-churn", "gc-pause", "module-loading", "graph-breaks"),
}
#: From this share of the step on, a finding about the hosts of some ranks must be in `stragglers` too (per cent).
SHOWN = 2.0

FAULTS = (
    *(f"straggler:rank={r},factor={f}" for r, f in ((1, 1.05), (1, 1.1), (2, 1.3), (3, 2.0))),
    *(f"imbalance:rank={r},factor={f}" for r, f in ((1, 1.1), (1, 1.3), (2, 2.0))),
    *("slow-host:rank=1", "slow-host:rank=2,factor=3", "dataloader:rank=1", "host-syncs:rank=2", "tiny-kernels:rank=1"),
    *("alloc:rank=3", "late-node:node=1,delay_us=8000", "late-node:node=0,delay_us=3000"),
    *("serialized:rank=1", "serialized:rank=1,how=stream", "dataloader:", "slow-host:", "serialized:"),
)
FACTORS = (1.2, 1.3, 1.4, 1.5, 1.7, 2, 3, 5, 10)
#: Links that have similar ones beside them: between four nodes, or groups of experts within one.
LINKS: dict[str, dict[str, int]] = {
    "1f1b": {"pp": 4, "nodes": 4},
    "zero-bubble": {"pp": 4, "nodes": 4},
    "interleaved": {"pp": 4, "layers": 8, "micro_batches": 8, "nodes": 4},
    "dualpipev": {"pp": 4, "layers": 8, "micro_batches": 8, "nodes": 4},
    "fsdp": {"dp": 4, "nodes": 4},
    "ddp": {"dp": 4, "nodes": 2},
}


def simulated() -> Iterator[tuple[str, Scenario]]:
    """Every schedule with every fault."""
    for schedule in MESHES:
        for fault in (None, *FAULTS):
            yield f"{schedule} {fault or 'healthy'}", scenario(schedule, fault)
        for where in ("node=1", "ranks=0-1"):
            for factor in FACTORS:
                fault = f"slow-link:{where},factor={factor}"
                yield f"{schedule} {fault}", scenario(schedule, fault, seed=7, **LINKS[schedule])


def real(traces: Path) -> Iterator[tuple[str, list[Path]]]:
    """Every real trace of several ranks, in `../shared/traces` and beside it."""
    ours, public = traces / "h200", traces / "public"
    for folder, captures in (("moe4", ("overlapped",)), ("moe4mps", ("overlapped", "cut_off"))):
        for name in ("serialized", *captures):
            yield f"{folder}/{name}", [ours / folder / f"{name}.sqlite"]
        yield f"{folder}/torch", sorted((ours / folder).glob("*.pt.trace.json.gz"))
    yield "payloads", [ours / "payloads" / "overlapped.sqlite"]
    for name in ("hf4_healthy", "hf4_straggler"):
        yield name, [ours / "hf" / f"{name}.sqlite"]
        yield f"{name}/torch", sorted((ours / "hf").glob(f"{name}.rank*"))
    for name in ("h100x2_before.sqlite", "h100x2_after.sqlite", "mi300x_4ranks_merged_nccl.json.gz"):
        yield name, [public / name]
    yield "amd_merged_all", [public / "amd_merged_all.json.gz"]
    yield "toke", sorted(public.glob("toke_ann*"))
    yield "dlrm8", [public / "dlrm8" / "dlrm_kineto"]
    yield "world128", sorted(public.glob("world128.rank*"))
    yield "saxpy_mpi", sorted(public.glob("a100_saxpy_mpi.rank*.sqlite"))
    yield "nsysai_2gpu", [public / "nsysai_2gpu_1s.sqlite"]
    yield "alcf_two_ranks", sorted((traces.parent / "judged").glob("alcf_two_ranks.*"))


def disagreements(profile: api.Profile) -> list[str]:
    """What one command names and the other does not, in words; nothing where either cannot answer."""
    try:
        late = api.analyse(profile, "stragglers")
        diagnosed = api.analyse(profile, "diagnose", least=0.0)
    except CannotAnswer:
        return []
    rows, findings = late.rows.to_dicts(), diagnosed.rows.to_dicts()
    return [
        *_differ("compute", _having(rows, "compute_more_ns"), _ranks(f for f in findings if _about_a_rank(f))),
        *_differ("network", _having(rows, "network_more_ns"), _ranks(f for f in findings if f["id"] == "slow-link")),
        *_differ("links", {link["ranks"] for link in late.summary["slow_links"]}, _links(findings)),
        *_hosts(rows, findings, _late_without_cause(late)),
    ]


def _late_without_cause(late: Result) -> set[int]:
    """The rank that `stragglers` names though nothing recorded says why it is late."""
    if not any(note.code == "late-without-cause" for note in late.notes):
        return set()
    return {max(late.rows.iter_rows(named=True), key=lambda row: row["late_ns"])["rank"]}


def _about_a_rank(finding: dict[str, Any]) -> bool:
    """Not about the layers of a pipeline stage, which make nobody a straggler."""
    return finding["id"] in COMPUTE and not (finding["id"] == "compute-imbalance" and finding["stage"])


def _hosts(rows: list[dict[str, Any]], findings: list[dict[str, Any]], late: set[int]) -> Iterator[str]:
    """`diagnose` has nine findings about hosts, most of which may be on all ranks; a straggler's is beside others."""
    about = [f for f in findings if f["id"] in HOST]
    # Who was late when the capture began is late without a recorded cause: `stragglers` has these ranks first.
    before = _ranks(f for f in about if "Nothing was recorded before the step" in f["evidence"])
    latest = sorted(rows, key=lambda row: -row["late_ns"])[: len(before)]
    if before != {row["rank"] for row in latest}:
        yield f"late from before: diagnose {sorted(before)}, stragglers {[row['rank'] for row in latest]}"
    named = {row["rank"] for row in rows if row["cause"] in ("host", "data")} | late
    if not named <= _ranks(about):
        yield f"host: stragglers {sorted(named)}, diagnose {sorted(_ranks(about))}"
    some = _ranks(f for f in about if f["share_pct"] >= SHOWN and len(_ranks([f])) < len(rows))
    if not some <= named | before:
        yield f"host: diagnose {sorted(some)}, stragglers {sorted(named)}"


def _links(findings: list[dict[str, Any]]) -> set[str]:
    """The ranks of every link that `diagnose` names."""
    found = [re.search(r"over the links of ranks (.*?):", f["evidence"]) for f in findings if f["id"] == "slow-link"]
    return {text for match in found if match for text in match[1].split(" / ")}


def _having(rows: list[dict[str, Any]], column: str) -> set[int]:
    return {row["rank"] for row in rows if row[column]}


def _ranks(findings: Any) -> set[int]:
    return {rank for finding in findings for rank in numbers(finding["ranks"])}


def _differ(what: str, stragglers: set[Any], diagnose: set[Any]) -> list[str]:
    if stragglers == diagnose:
        return []
    return [f"{what}: stragglers {sorted(stragglers)}, diagnose {sorted(diagnose)}"]
