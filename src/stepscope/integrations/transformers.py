"""transformers' Trainer, and accelerate: a callback that marks steps, for those who want to say it in the program.

    from stepscope.integrations.transformers import StepscopeCallback

    trainer = Trainer(…, callbacks=[StepscopeCallback()])

`capture run` finds these steps without it. The callback numbers them as the Trainer does (a job that resumes at step
5000 has `step 5000`), and puts micro-batch size and sequence length into the setup label.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

from stepscope import annotate
from stepscope.annotate.safety import harmless
from stepscope.integrations.mesh import places


class StepscopeCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Steps as optimizer steps: accumulation lies within one."""

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        torch = sys.modules["torch"]
        world = int(getattr(args, "world_size", 1))
        rank = int(getattr(args, "process_index", os.environ.get("RANK", 0)))
        seq = int(getattr(getattr(model, "config", None), "max_position_embeddings", 0))
        axes = places(torch, world) or {"dp": (rank, world)}
        annotate.setup(rank=rank, mbs=int(args.per_device_train_batch_size), seq=seq, **axes)

    @harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        annotate.begin_step(int(state.global_step))

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        annotate.end_step()

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        annotate.finish()
