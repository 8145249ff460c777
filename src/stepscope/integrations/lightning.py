"""Lightning: a callback that marks steps, for those who want to say it in the program.

    from stepscope.integrations.lightning import StepscopeCallback

    trainer = Trainer(…, callbacks=[StepscopeCallback()])

`capture run` finds these steps without it. A step is an optimizer step: `global_step` grows with it, and batches that
only accumulate belong to the next one. With several optimizers, which each count, leave the callback out.
"""

from __future__ import annotations

import sys
from typing import Any

if "pytorch_lightning" in sys.modules:
    from pytorch_lightning import Callback  # type: ignore[import-not-found, unused-ignore]
else:
    from lightning.pytorch import Callback  # type: ignore[import-not-found, unused-ignore]

from stepscope import annotate
from stepscope.annotate.safety import harmless
from stepscope.integrations.mesh import places


class StepscopeCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Begins a step with its first batch, and ends it with the batch after which the optimizer has stepped."""

    _done = 0

    @harmless
    def on_train_start(self, trainer: Any, module: Any) -> None:
        world, rank = int(trainer.world_size), int(trainer.global_rank)
        axes = places(sys.modules["torch"], world) or {"dp": (rank, world)}
        annotate.setup(rank=rank, mbs=0, seq=0, **axes)
        self._done = int(trainer.global_step)

    @harmless
    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        annotate.begin_step(int(trainer.global_step))  # nothing where one is open

    @harmless
    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if int(trainer.global_step) > self._done:
            self._done = int(trainer.global_step)
            annotate.end_step()

    @harmless
    def on_train_end(self, trainer: Any, module: Any) -> None:
        annotate.finish()
