from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`stepscope.simulate(…)` is the name that users look for, and this package has it: so it can be called."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("stepscope.api.simulating").simulate(*args, **options)


sys.modules[__name__].__class__ = _Callable
