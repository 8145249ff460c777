"""What can be planted into a job so that it hangs, or only seems to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from stepscope.errors import BadInput, meant_of
from stepscope.simulate.hang.job import Program

#: By class, what was planted: of orders two calls that changed places, one left out, one too many, and a step that ends
#: early, as where the data of a rank ran out.
CLASSES = {
    "host": "host-stopped",
    "gpu": "gpu-stopped",
    "link": "link-dead",
    "order": "mismatch-order",
    "skip": "mismatch-order",
    "extra": "mismatch-order",
    "short": "mismatch-order",
    "size": "mismatch-size",
    "type": "mismatch-type",
    "group": "mismatch-group",
    "crash": "crashed",
    "oom": "out-of-memory",
    "deadlock": "deadlock",
    "slow": "slow",
    "healthy": "running",
}


@dataclass(frozen=True)
class HangFault:
    """A fault at the call of a rank; both drawn by the seed where they are not given."""

    name: str
    rank: int = -1
    call: int = -1

    @property
    def verdict(self) -> str:
        return CLASSES[self.name]


#: What can be said of a hang beside its class, and of the dumps.
OPTIONS = ("rank", "call", "missing", "buffer", "timing", "batched")
_SWITCHES = {"on": True, "off": False}


def parse(text: str) -> HangFault:
    """`host`, `gpu:rank=3`, `link:rank=3,call=40`; what concerns the dumps is left out (`of_dumps`)."""
    name, values = _parts(text)
    return HangFault(name, **{key: int(values[key]) for key in ("rank", "call") if key in values})


def of_dumps(text: str) -> dict[str, Any]:
    """What `missing=2,buffer=500,timing=off,batched=on` of the same text says: fields of a `HangJob`."""
    values = _parts(text)[1]
    return {key: values[key] for key in ("missing", "buffer", "timing", "batched") if key in values}


def _parts(text: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = text.partition(":")
    if name not in CLASSES:
        raise BadInput(f"--hang {text}: no class {name!r}", meant_of(name, CLASSES))
    values: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        switch = key in ("timing", "batched")
        if key not in OPTIONS or not (value in _SWITCHES if switch else value.isdigit()):
            raise BadInput(f"--hang {text}: {part!r} is not possible", f"give {', '.join(OPTIONS)}, as in rank=3")
        values[key] = _SWITCHES[value] if switch else int(value)
    return name, values


def placed(made: Program, fault: HangFault, random: Random) -> HangFault | None:
    """The fault with its rank and call drawn, planted into the program where it is one of it; None where it does not
    fit."""
    job = made.job
    rank = fault.rank if fault.rank >= 0 else random.randrange(job.world)
    if rank >= job.world:
        raise BadInput(f"--hang: no rank {rank}", f"the job has {job.world}")
    calls = made.calls[rank]
    least = len(calls) * 2 // 5
    at = fault.call if fault.call >= 0 else random.randrange(least, max(least + 1, len(calls) * 9 // 10))
    if at >= len(calls):
        raise BadInput(f"--hang: rank {rank} has no call {at}", f"it makes {len(calls)}")
    fault = replace(fault, rank=rank, call=at)
    plant = {
        "order": _order,
        "skip": _skip,
        "extra": _extra,
        "short": _short,
        "size": _size,
        "type": _type,
        "group": _group,
        "deadlock": _deadlock,
    }
    return fault if fault.name not in plant or plant[fault.name](made, rank, at) else None


def _order(made: Program, rank: int, at: int) -> bool:
    """Two calls of one group change places."""
    calls = made.calls[rank]
    first = calls[at]
    for other in range(at + 1, min(at + 8, len(calls))):
        second = calls[other]
        unlike = (second.kind, second.elements, second.dtype) != (first.kind, first.elements, first.dtype)
        if second.group == first.group and not second.pairs and not first.pairs and unlike:
            calls[at], calls[other] = second, first
            return True
    return False


def _skip(made: Program, rank: int, at: int) -> bool:
    """A call is left out."""
    if made.calls[rank][at].pairs:
        return False
    del made.calls[rank][at]
    return True


def _extra(made: Program, rank: int, at: int) -> bool:
    """A call of another place of the program, too: a metric that one rank alone reduces."""
    calls = made.calls[rank]
    others = [c for c in calls[: at + 1] if not c.pairs and c.site != calls[at].site]
    if calls[at].pairs or not others:
        return False
    calls.insert(at, replace(others[-1], step=calls[at].step))
    return True


def _short(made: Program, rank: int, at: int) -> bool:
    """The rest of the step is left out, and the next one begins."""
    calls = made.calls[rank]
    end = next((n for n in range(at, len(calls)) if calls[n].step != calls[at].step), len(calls))
    if any(call.pairs for call in calls[at:end]) or end == len(calls) or end - at < 2:
        return False
    del calls[at:end]
    return True


def _size(made: Program, rank: int, at: int) -> bool:
    call = made.calls[rank][at]
    if call.pairs or call.kind == "all_to_all" or call.elements < 2:
        return False
    made.calls[rank][at] = replace(call, elements=call.elements // 2, out=call.out // 2)
    return True


def _type(made: Program, rank: int, at: int) -> bool:
    """Another kind of call, or of element."""
    call = made.calls[rank][at]
    if call.pairs:
        return False
    if call.kind == "all_reduce":
        made.calls[rank][at] = replace(call, dtype="Half")
    else:
        made.calls[rank][at] = replace(call, kind="all_reduce", out=call.elements)
    return True


def _group(made: Program, rank: int, at: int) -> bool:
    """The call goes to another group of the rank."""
    call = made.calls[rank][at]
    own = [numbers[rank] for axis, numbers in made.of.items() if axis != "pp"]
    others = [group for group in own if group >= 0 and group != call.group]
    if call.pairs or not others:
        return False
    made.calls[rank][at] = replace(call, group=others[at % len(others)])
    return True


def _deadlock(made: Program, rank: int, at: int) -> bool:
    """Two calls of groups that share ranks change places: each side waits in the other's second call."""
    calls = made.calls[rank]
    first = calls[at]
    for other in range(at + 1, min(at + 4, len(calls))):
        second = calls[other]
        if second.group == first.group:
            continue
        shared = set(made.groups[first.group].members) & set(made.groups[second.group].members)
        if len(shared) < 2 and not (first.pairs or second.pairs):
            continue
        calls[at], calls[other] = replace(second, chain=True), replace(first, chain=True)
        return True
    return False
