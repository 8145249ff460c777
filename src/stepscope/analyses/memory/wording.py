"""What is said of a ledger: the sentence that closes the answer, and notes on what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from stepscope.analyses.memory.ledger import CACHED, FRAGMENTATION, Ledger
from stepscope.analyses.memory.oom import oom_sentence, out_of_memory
from stepscope.analyses.memory.rules import BACKWARD, PARTS
from stepscope.derive.memory.estimate import Estimate
from stepscope.intervals.arrays import NONE
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.statement import listed, percent, several
from stepscope.model.units import about, size

#: Parts that grow together: what they are called, and what that means for scaling.
_GROUPS = {
    "weights, gradients and optimizer states": (
        ("weights", "gradients", "optimizer states"),
        "parameters limit scaling: shard them (ZeRO, tensor or pipeline parallelism)",
    ),
    "activations and temporary tensors": (
        ("activations", "temporary"),
        "tokens of a micro-batch limit scaling: recompute activations, shard the sequence, or use smaller "
        "micro-batches",
    ),
    "communication": (
        ("communication",),
        "communication buffers limit scaling: use smaller buckets, or gradients as views of them",
    ),
    "the KV cache": (("KV cache",), "tokens held in the KV cache limit scaling"),
    "what is cached or fragmented": (
        (CACHED, FRAGMENTATION),
        "the allocator's own room limits scaling: try PYTORCH_ALLOC_CONF=expandable_segments:True",
    ),
    "what cannot be told": (("unknown",), "record from the start of the program to tell what limits scaling"),
}
_TOKENS = ("activations", "temporary", "KV cache")


def ledger_sentence(
    of_ranks: Sequence[Ledger], room: tuple[str, int] | None, guessed: Estimate | None, dp: int = 1
) -> str:
    """What the device that has most reserved has it for, and what limits scaling; why memory ran out, where it did."""
    ledger = max(of_ranks, key=lambda each: (len(each.history.oom) > 0, each.reserved))
    table = ledger.parts()
    parts = dict(zip(table["part"].to_list(), table["bytes"].to_list(), strict=True))
    where = f" on rank {ledger.history.rank}" if len(of_ranks) > 1 else ""
    if (ran_out := out_of_memory(ledger, dp, room[1] if room else None)) is not None:
        text = oom_sentence(ran_out, where)
    elif not ledger.history.events:
        text = _without_history(ledger, parts, where)
    else:
        text = (
            f"At the peak{where} ({ledger.phase}) {size(ledger.reserved)} are reserved; {_limit(parts, ledger.whole)}"
        )
        text += f"; {more}" if (more := _more(parts, ledger.reserved, room)) is not None else ""
    if guessed is not None:
        off = round(100.0 * (guessed.size - ledger.allocated) / max(1, ledger.allocated), 1) + 0.0
        of = f"{size(guessed.size)} of {size(ledger.allocated)} given out"
        text += f"; the estimate of the model is {of} ({off:+.1f} %)"
    return text + "."


def _without_history(ledger: Ledger, parts: dict[str, int], where: str) -> str:
    """What is free at the end may have been full at the peak: it says nothing of what limits scaling."""
    held = listed(f"{name} {size(held)}" for name, held in parts.items() if held and name in PARTS)
    text = (
        f"When the snapshot was taken{where}, {size(ledger.allocated)} of {size(ledger.reserved)} reserved were in use"
    )
    text += f" ({held})" if held else ""
    return (
        f"{text}; what the rest held before, and what the peak was, is not known: no history was recorded "
        "(torch.cuda.memory._record_memory_history() before the model is made)"
    )


def estimate_sentence(estimated: Estimate, room: tuple[str, int] | None) -> str:
    """The same of a declared model."""
    parts = estimated.peak.parts()
    job = estimated.job
    text = (
        f"{job.model.name} ({estimated.total / 1e9:.3g} billion parameters) needs {size(estimated.size)} a rank, in "
        f"{estimated.peak.when}; {_limit(parts, estimated.size)}"
    )
    more = _more(parts, estimated.size, room)
    return f"{text}; {more}." if more else f"{text}."


def _limit(parts: dict[str, int], total: int) -> str:
    sums = {name: sum(parts.get(p, 0) or 0 for p in members) for name, (members, _) in _GROUPS.items()}
    name = max(sums, key=lambda group: sums[group])
    verb = "takes" if name.startswith(("what", "comm", "the KV")) else "take"
    return f"{name} {verb} {percent(sums[name], total)}, so {_GROUPS[name][1]}"


def _more(parts: dict[str, int], total: int, room: tuple[str, int] | None) -> str | None:
    """How many more tokens the GPU would hold."""
    if room is None:
        return None
    name, memory = room
    growing = sum(parts.get(p, 0) or 0 for p in _TOKENS)
    if total > memory:
        return f"that is {size(total - memory)} more than {name} has"
    factor = (memory - (total - growing)) / growing if growing else 0.0
    return f"{name} ({size(memory)}) would hold {factor:.1f} times as many tokens" if growing else None


def stall_sentence(table: pl.DataFrame, idle: int | None) -> str:
    """How often the allocator went to CUDA, and what that cost."""
    if not table.height:
        return "The allocator never went to CUDA while it was recorded: no stall."
    asked = table.filter(pl.col("kind").is_in(["segment asked of CUDA", "pages mapped"]))
    returned = table.filter(pl.col("kind").str.contains("returned"))
    text = f"The allocator went to CUDA {several(table.height, 'time')}: {size(int(asked['bytes'].sum()))} asked for"
    text += f", {size(int(returned['bytes'].sum()))} returned" if returned.height else ", nothing returned"
    if out := table.filter(pl.col("kind") == "out of memory").height:
        text += f"; memory ran out {several(out, 'time')}"
    if idle is not None:
        matched = int(table["idle_ns"].fill_null(0).sum())
        text += f"; the GPU was idle for {about(idle)} in calls that manage memory, {about(matched)} of it in these"
    return text + "."


def estimate_notes(estimated: Estimate) -> list[Note]:
    """What an estimate takes for granted."""
    job, notes = estimated.job, []
    text = "the estimate is of transformers' own modules in PyTorch's eager mode, with flash attention"
    text += ", and a KV cache in 16 bits" if job.kv_tokens else " and a fp32 loss"
    notes.append(noted("estimate-assumes", text=text))
    if job.model.experts:
        notes.append(noted("experts-even"))
    if job.model.kv_rank and not job.kv_tokens:
        text = "latent attention is taken as if its keys and values were expanded, and nothing else were kept"
        notes.append(noted("latent-attention", text=text))
    if job.dp * job.cp * job.ep * job.tp * job.pp > 1:
        notes.append(noted("outside-not-estimated"))
    return notes


def notes_of(profile: Profile, of_ranks: Sequence[Ledger]) -> list[Note]:
    """What was inferred, and what was not recorded."""
    notes = []
    for ledger in of_ranks:
        history, stacks = ledger.history, ledger.stacks
        early = int(history.blocks.requested[history.blocks.begin == NONE].sum())
        if early:
            notes.append(noted("allocated-before/segments", early=size(early)))
        if history.unnamed:
            notes.append(noted("allocated-before", unnamed=size(history.unnamed)))
        if (
            stacks.recorded
            and stacks.of_event is None
            and not stacks.traits[BACKWARD].any()
            and ledger.decided.backward.any()
        ):
            notes.append(noted("backward-by-thread"))
        if not stacks.recorded and history.events:
            notes.append(noted("no-stacks"))
        if over := int(ledger.parts()["bytes"].sum()) - ledger.reserved:
            notes.append(noted("ledger-open", excess=size(over)))
        if not history.events:
            notes.append(noted("no-history"))
        if (retries := int(np.count_nonzero((history.action == "segment_free").to_numpy()))) and len(history.oom):
            notes.append(noted("allocator-retries", segments=several(retries, "segment")))
    return list(dict.fromkeys(notes))
