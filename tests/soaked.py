"""What a long life did to a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Soaked:
    """Of `serve` or `mcp`: how much was asked, what it held before and after, and what went wrong."""

    served: str
    requests: int = 0
    minutes: float = 0
    rss_start_mb: float = 0
    rss_end_mb: float = 0
    fds_start: int = 0
    fds_end: int = 0
    errors: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        figures = {k: round(v, 1) if isinstance(v, float) else v for k, v in self.__dict__.items()}
        return {"suite": "soak", **figures, "errors": len(self.errors)}

    def leaks(self, allowed_mb: float) -> list[str]:
        """What grew, beyond what an allocator keeps."""
        grown = self.rss_end_mb - self.rss_start_mb
        said = [f"memory grew by {grown:.0f} MB"] if grown > allowed_mb else []
        if self.fds_end > self.fds_start:
            said.append(f"descriptors grew from {self.fds_start} to {self.fds_end}")
        return said
