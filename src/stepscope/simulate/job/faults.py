"""Faults that a simulated job can be given: `name:key=value,key=value`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.errors import BadInput, meant_of


class Param(NamedTuple):
    """A parameter of a fault: how to read it, its default (None: required, or "every rank"), and its bounds."""

    kind: str  # "int", "float", "word"
    default: float | str | None = None
    least: float = 0.0
    most: float = 1e9
    required: bool = False


_RANK = Param("int")
_ONE_RANK = Param("int", required=True)
#: What can be planted, with its parameters.
KNOWN: dict[str, dict[str, Param]] = {
    "straggler": {"rank": _ONE_RANK, "factor": Param("float", 1.5, 1, 1000)},
    # More of the same launches; the same launches, each with more to do. The speed of the GPU is that of the others.
    "more-launches": {"rank": _ONE_RANK, "per_layer": Param("int", 1, 1, 1000)},
    "larger-batch": {"rank": _ONE_RANK, "factor": Param("float", 1.5, 1, 1000)},
    # Python of its own before every layer: the host is late by little, again and again.
    "reduce-always": {},  # DDP reduces gradients in every micro-batch
    "one-bucket": {},  # DDP reduces all gradients at once, after the backward pass
    "no-prefetch": {},  # FSDP gathers the parameters of a layer when it needs them, not before
    "slow-python": {"rank": _ONE_RANK, "us": Param("float", 2500.0, 0, 1e9)},
    "slow-host": {"rank": _RANK, "factor": Param("float", 8.0, 1, 1000)},
    "dataloader": {"rank": _RANK, "stall_ms": Param("float", 20.0, 0, 1e6)},
    "host-syncs": {"rank": _RANK, "per_layer": Param("int", 4, 1, 1000)},
    "serialized": {"rank": _RANK, "how": Param("word", "wait")},
    "tiny-kernels": {"rank": _RANK, "split": Param("int", 32, 2, 1000)},
    "alloc": {"rank": _RANK, "per_layer": Param("int", 1, 1, 1000)},
    "imbalance": {"rank": _ONE_RANK, "factor": Param("float", 2.0, 1, 1000)},
    "slow-link": {"node": Param("int"), "ranks": Param("word"), "factor": Param("float", 4.0, 1, 1000)},
    "late-node": {"node": Param("int", required=True), "delay_us": Param("float", 5000.0)},
    # Of the run, not of every step. Steps count from 0; `at` has them as 3+11+20.
    "spike": {"rank": _RANK, "at": Param("word", required=True), "ms": Param("float", 60.0, 0, 1e6)},
    "checkpoint": {
        "every": Param("int", 3, 1, 10**6),
        "ms": Param("float", 200.0, 0, 1e6),
        "where": Param("word", "in"),
    },
    "evaluation": {
        "every": Param("int", 3, 1, 10**6),
        "passes": Param("int", 4, 1, 1000),
        "where": Param("word", "in"),
    },
    "penalty": {
        "every": Param("int", 4, 1, 10**6),
        "passes": Param("int", 1, 1, 1000),
        "where": Param("word", "in"),
    },
    "noise": {"rank": _RANK, "us": Param("float", 100.0, 0, 1e9)},
    "drift": {"rank": _RANK, "us": Param("float", 500.0, 0, 1e9)},
    "clock": {
        "node": Param("int", required=True),
        "offset_us": Param("float", 0.0, -1e12, 1e12),
        "drift_ppm": Param("float", 0.0, -1e5, 1e5),
    },
}
_SERIALIZED = ("wait", "stream")
#: In the range of the next step, or between the ranges of two steps.
_WHERE = ("in", "between")


@dataclass(frozen=True)
class Fault:
    """One planted fault, with every parameter filled in."""

    name: str
    params: dict[str, Any]

    def hits(self, rank: int) -> bool:
        """Whether a fault of single ranks is on this one; without `rank` it is on all."""
        chosen: int | None = self.params.get("rank")
        return chosen is None or chosen == rank

    def recurs(self, number: int) -> bool:
        """Whether what recurs every so many steps comes with this one."""
        every: int = self.params["every"]
        return number % every == every - 1

    def pair(self) -> tuple[int, int] | None:
        """The two ranks of a slow link."""
        text: str | None = self.params.get("ranks")
        if text is None:
            return None
        a, _, b = text.partition("-")
        return int(a), int(b)


def parse(spec: str) -> Fault:
    """A fault from `name:key=value,...`; what is not given has its default."""
    name, _, rest = spec.strip().partition(":")
    if name not in KNOWN:
        raise BadInput(f"--fault {spec}: no fault {name!r}", meant_of(name, sorted(KNOWN)))
    known = KNOWN[name]
    params: dict[str, Any] = {key: p.default for key, p in known.items()}
    for part in filter(None, rest.split(",")):
        key, eq, text = part.partition("=")
        key = key.strip()
        if key not in known or not eq:
            raise BadInput(f"--fault {spec}: {name} has no parameter {part!r}", f"give {_usage(name)}")
        params[key] = _value(spec, key, text.strip(), known[key])
    missing = [key for key, p in known.items() if p.required and params[key] is None]
    if missing:
        raise BadInput(f"--fault {spec}: {', '.join(missing)} is missing", f"give {_usage(name)}")
    return Fault(name, params)


def check(fault: Fault, world: int, nodes: int, ep: int) -> None:
    """Refuse a fault that this job cannot have."""
    where = f"--fault {fault.name}"
    rank, node = fault.params.get("rank"), fault.params.get("node")
    if rank is not None and not 0 <= rank < world:
        raise BadInput(f"{where}: no rank {rank} among {world}", f"they count from 0 to {world - 1}")
    if node is not None and not 0 <= node < nodes:
        raise BadInput(f"{where}: no node {node} with --nodes {nodes}", "they count from 0")
    if fault.name == "imbalance" and ep < 2:
        raise BadInput(f"{where}: there are no experts to balance with ep = 1", "give --ep 2 or more")
    if fault.name == "serialized" and fault.params["how"] not in _SERIALIZED:
        raise BadInput(f"{where}: how={fault.params['how']}", f"give {' or '.join(_SERIALIZED)}")
    if fault.name == "slow-link":
        _check_link(fault, world, nodes)
    if fault.params.get("where", "in") not in _WHERE:
        raise BadInput(f"{where}: where={fault.params['where']}", f"give {' or '.join(_WHERE)}")
    if fault.name == "spike" and not all(n.isdigit() for n in fault.params["at"].split("+")):
        raise BadInput(f"{where}: at={fault.params['at']}", "give numbers of steps, as in at=3+11")


def _check_link(fault: Fault, world: int, nodes: int) -> None:
    node, ranks = fault.params["node"], fault.params["ranks"]
    if (node is None) == (ranks is None):
        raise BadInput("--fault slow-link: which link?", "give node=N or ranks=A-B")
    if node is not None and nodes < 2:
        raise BadInput("--fault slow-link: one node has no link to another", "give --nodes 2 or more, or ranks=A-B")
    if ranks is None:
        return
    a, dash, b = ranks.partition("-")
    if not (dash and a.isdigit() and b.isdigit() and a != b and int(a) < world and int(b) < world):
        raise BadInput(f"--fault slow-link: ranks={ranks}", f"give two ranks as A-B, each below {world}")


def _value(spec: str, key: str, text: str, param: Param) -> float | int | str:
    if param.kind == "word":
        return text
    try:
        value = int(text) if param.kind == "int" else float(text)
    except ValueError:
        raise BadInput(f"--fault {spec}: {key}={text} is not a number", f"give {key} a number") from None
    if not param.least <= value <= param.most:
        raise BadInput(f"--fault {spec}: {key}={text} is out of range", f"give {param.least:g} to {param.most:g}")
    return value


def _usage(name: str) -> str:
    return f"{name}:" + ",".join(f"{key}=…" for key in KNOWN[name])
