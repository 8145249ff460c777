"""What a program asks of torch.compile: backend, mode, dynamic, fullgraph. For the manifest: no trace has it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stepscope.annotate.recorder import compiled_with
from stepscope.annotate.safety import harmless

_put_back: list[Callable[[], None]] = []


def watch_compile(torch: Any) -> None:
    """Note the arguments of `torch.compile`, which decorators and `Module.compile` call, too."""
    plain = torch.compile

    @harmless
    def note(options: dict[str, Any]) -> None:
        asked = settings(options)
        if not options.get("disable") and asked not in compiled_with:
            compiled_with.append(asked)

    @functools.wraps(plain)
    def compile(*args: Any, **options: Any) -> Any:
        note(options)
        return plain(*args, **options)

    torch.compile = compile
    _put_back.append(functools.partial(setattr, torch, "compile", plain))


def unwatch_compile() -> None:
    """`torch.compile` as it was."""
    while _put_back:
        _put_back.pop()()


def settings(options: dict[str, Any]) -> dict[str, Any]:
    """As torch names them, with its defaults; of `options`, what JSON can hold."""
    backend = options.get("backend") or "inductor"
    more = {str(k): v for k, v in (options.get("options") or {}).items() if isinstance(v, bool | int | float | str)}
    return {
        "backend": backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__),
        "mode": options.get("mode") or "default",
        "dynamic": options.get("dynamic"),
        "fullgraph": bool(options.get("fullgraph", False)),
        **({"options": more} if more else {}),
    }
