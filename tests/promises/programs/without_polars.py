"""stepscope's command line where Polars is not installed and too large to bring: enough for `capture run --no-verify`.

Every name of Polars is there, and does nothing: a capture is only made, and read elsewhere. DEPS is a folder with the
other packages that stepscope needs (prepare.sh). The program that is captured sees nothing of this.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

_CLASSES = ("DataFrame", "LazyFrame", "Series", "Expr", "DataType")


class Nothing(ModuleType):
    """A module in which every name is something."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (Exception,), {}) if name.endswith("Error") else MagicMock(name=name)
        setattr(self, name, type(name, (), {}) if name in _CLASSES else value)
        return self.__dict__[name]


for name in ("polars", "polars.exceptions", "polars.datatypes", "polars.selectors", "polars.testing"):
    sys.modules[name] = Nothing(name)
sys.path[1:1] = [str(Path(__file__).parents[3] / "src"), *os.environ.get("DEPS", "").split(":")]
sys.argv[0] = "stepscope"

from stepscope.__main__ import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
