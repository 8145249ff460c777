"""Jobs that never ran, with a known truth. Called, this package makes one and opens it:

    stepscope.simulate(dp=4, pp=1, ep=1, fault="straggler:rank=3,factor=1.5")
    stepscope.simulate("folder", written="kineto", steps=8)

`fault` takes what `stepscope simulate --fault` takes, one or a list; `written` is "nsys" or "kineto"; the other
keywords are the options of that command, with underscores. Files go into the folder, else into one that is gone with
the process.
"""

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
