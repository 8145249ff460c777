"""What an op's start can have waited for within its rank: the op before it on its stream, and the host's waits."""

from __future__ import annotations

import numpy as np

from stepscope.simulate.engine.rank import RankSim
from stepscope.simulate.programs.assemble import bytes_of, table
from stepscope.simulate.trace.trace import I64


def before_on_stream(sim: RankSim) -> I64:
    """The op before each op on its stream, -1 for the first; in launch order."""
    slot = bytes_of(sim.op_slot)
    order = np.argsort(slot, kind="stable")
    found = np.full(len(order), -1, dtype=np.int64)
    same = slot[order][1:] == slot[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found


def waits_of_host(sim: RankSim) -> tuple[I64, I64, I64]:
    """Where the host waited for the GPU, in order: call, op, and 1 where for the op's start alone (a full queue)."""
    call, op, start = table(sim.host_wait, 3)
    return call, op, start
