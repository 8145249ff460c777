"""Why a block is what it is, and which part of the ledger that makes it."""

from __future__ import annotations

import numpy as np

from stepscope.analyses.memory.rules import (
    ACTIVATIONS,
    COMMUNICATION,
    GRADIENTS,
    KV_CACHE,
    STATES,
    TEMPORARY,
    UNKNOWN,
    WEIGHTS,
)

#: Why a block is what it is. The order is that of the decisions: the first that applies.
REASONS = (
    "communication's buckets or buffers",
    "a cache of keys and values",
    "a library's workspace",
    "a module's, alive at the end",
    "the optimizer's, outlives its step",
    "the optimizer's, for its step only",
    "forward, alive in backward",
    "computed again for backward",
    "forward, alive when memory ran out",
    "backward, alive when the optimizer steps",
    "backward, gone before the optimizer steps",
    "forward, gone before backward",
    "before recording: a gradient's size",
    "before recording: several of a gradient's size",
    "before recording: a module's",
    "before recording: sizes do not say",
    "outlives the step that allocated it",
    "alive when the recording ends",
    "no stack was recorded",
    "before the trace: not named",
    "released; no backward pass is recorded",
    "backward, outlives the backward pass",
    "forward, alive when the recording ends",
    "before recording: a gradient's size, released before the next gradients",
    "before recording: a gradient's size, replaced by the optimizer",
    "before recording: released by a backward pass, or of an activation's size",
    "before recording, never released: weights and other old blocks",
    "before recording: the second of a parameter's size while the optimizer steps",
    "before recording: two more of each size that is never released",
    "before recording: the second of a parameter's size, added to in each backward pass",
    "the optimizer's: an old state beside the new one",
)
(
    COMM, KV, WORKSPACE, MODULE, STATE, IN_STEP, SAVED, AGAIN, OOM, GRADIENT, BACKWARD_ONLY, FORWARD_ONLY,
    LIKE_GRADIENTS, LIKE_STATES, EARLY_MODULE, EARLY, OUTLIVES, TOO_EARLY, NO_STACK, UNNAMED, RELEASED,
    OUTLIVES_PASS, HELD, OLD_GRADIENT, OLD_STATE, OLD_ACTIVATION, OLD, KEPT_GRADIENT, TWO_MORE, ADDED_TO, BESIDE_NEW,
) = range(len(REASONS))  # fmt: skip

PART_OF = np.array(
    [
        COMMUNICATION, KV_CACHE, TEMPORARY, WEIGHTS, STATES, TEMPORARY, ACTIVATIONS, ACTIVATIONS, ACTIVATIONS,
        GRADIENTS, TEMPORARY, TEMPORARY, WEIGHTS, STATES, WEIGHTS, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
        TEMPORARY, GRADIENTS, ACTIVATIONS, GRADIENTS, STATES, ACTIVATIONS, WEIGHTS,
        GRADIENTS, STATES, GRADIENTS, TEMPORARY,
    ]
)  # fmt: skip
