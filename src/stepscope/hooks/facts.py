"""What the program had set in torch, and the most memory that it took: for the manifest, asked once, at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def facts(torch: Any) -> dict[str, Any]:
    """What torch answers; whatever it does not know is left out. CUDA is not started by asking."""
    asked: dict[str, Callable[[], Any]] = {
        "deterministic": lambda: bool(torch.are_deterministic_algorithms_enabled()),
        "fills_memory": lambda: bool(torch.utils.deterministic.fill_uninitialized_memory),
        "cudnn_deterministic": lambda: bool(torch.backends.cudnn.deterministic),
        "cudnn_benchmark": lambda: bool(torch.backends.cudnn.benchmark),
        "matmul_precision": lambda: str(torch.get_float32_matmul_precision()),
    }
    facts = {"settings": _answered(asked)}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        cuda = torch.cuda
        facts["memory"] = _answered(
            {
                "allocated_bytes": lambda: int(cuda.max_memory_allocated()),
                "reserved_bytes": lambda: int(cuda.max_memory_reserved()),
                "total_bytes": lambda: int(cuda.get_device_properties(cuda.current_device()).total_memory),
            }
        )
    return facts


def _answered(asked: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Versions of torch differ: a question that one of them does not know has no answer."""
    settings = {}
    for name, ask in asked.items():
        try:
            settings[name] = ask()
        except Exception:
            continue
    return settings
