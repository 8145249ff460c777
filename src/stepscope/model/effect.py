"""What an option does beside changing the answer: front ends that may not write or draw leave such options out."""

from __future__ import annotations

from enum import Enum


class Effect(Enum):
    """Stands in the annotation of an option, after its help: `Annotated[Path | None, "…", Effect.WRITES]`."""

    READS = "names a file or folder that is read"
    WRITES = "names a file that is written"
    DRAWS = "draws in the terminal"
