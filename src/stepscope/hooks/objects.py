"""What a running program holds: its optimizers, its models, and where this rank stands on its mesh."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from stepscope.integrations.mesh import Place, places


def _instances(kind: type) -> list[Any]:
    """Every live object of a class. `type(o)`, as asking a proxy for its class can make it do things."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def hooked_optimizers(optimizer: type) -> list[Any]:
    """Optimizers whose steps we see; wrappers around one are none themselves."""
    return [o for o in _instances(optimizer) if getattr(type(o).step, "hooked", False)]


def upper_modules(torch: Any, depth: int) -> Iterator[tuple[str, int, Any]]:
    """Models that learn, and their modules down to `depth`: qualified name, level, module.

    A list of modules is not a level: it is never called. What torch.compile compiled is not entered: hooks in it would
    make it compile again.
    """
    everyone = _instances(torch.nn.Module)
    children = {id(c) for m in everyone for c in m._modules.values() if c is not None}
    models = [m for m in everyone if id(m) not in children and any(p.requires_grad for p in m.parameters())]
    seen: set[int] = set()
    for model in models:
        yield from _below(torch, model, "", 0, depth, seen)


def _below(
    torch: Any, module: Any, name: str, level: int, depth: int, seen: set[int]
) -> Iterator[tuple[str, int, Any]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    listed = isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict))
    compiled = getattr(module, "_compiled_call_impl", None) is not None
    if not listed and not compiled:
        yield name, level, module
    if compiled or hasattr(module, "_orig_mod") or (level >= depth and not listed):
        return
    for part, child in module._modules.items():
        if child is not None:
            yield from _below(torch, child, f"{name}.{part}".lstrip("."), level + (not listed), depth, seen)


def label_of(rank: int, torch: Any) -> str:
    """The setup label, as far as torch and the program's framework know: the rank, its axes, the world."""
    dist = torch.distributed
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    found: dict[str, Place] = places(torch, world)
    axes = " ".join(f"{axis}={at}/{size}" for axis, (at, size) in found.items())
    return "; ".join(filter(None, (f"rank={rank}", axes, f"world={world}")))
