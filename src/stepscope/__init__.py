"""Where did the training step go? GPU profiles of distributed training, answered.

    import stepscope
    p = stepscope.open("traces/*.sqlite")
    r = p.overlap(anchor="forward chunk")

Everything but the errors is imported when first used: `import stepscope` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.errors import BadInput, CannotAnswer, GateFailed, StepscopeError

if TYPE_CHECKING:
    from stepscope.api import Profile, open
    from stepscope.api.simulating import simulate
    from stepscope.model.result import Result

    __version__: str

__all__ = [
    "BadInput",
    "CannotAnswer",
    "GateFailed",
    "Profile",
    "Result",
    "StepscopeError",
    "__version__",
    "open",
    "simulate",
]

_LAZY = {
    "open": "stepscope.api",
    "Profile": "stepscope.api",
    "Result": "stepscope.model.result",
}

#: What somebody who knows the commands tries first. Not asked for by name: importing all questions takes time.
_OF_PROFILES = frozenset({"breakdown", "compare", "diagnose", "idle", "info", "kernels", "report", "sql", "timeline"})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("stepscope")
        except PackageNotFoundError:  # run from its sources, not installed
            return "0+source"
    if name == "simulate" or name in _LAZY:
        from importlib import import_module

        from stepscope.files.budget import need_addresses

        need_addresses()  # before the libraries are loaded, which end the process where `ulimit -v` is too low
        if name == "simulate":  # a package that can be called
            return import_module("stepscope.simulate")
        return getattr(import_module(_LAZY[name]), name)
    why = f"; ask a profile: stepscope.open(PATH).{name}(…)" if name in _OF_PROFILES else ""
    raise AttributeError(f"module 'stepscope' has no attribute {name!r}{why}")


def __dir__() -> list[str]:
    return sorted(__all__)
