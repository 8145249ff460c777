"""Questions as methods of a profile. `make docs` writes their signatures, for editors, into `methods.pyi`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope import questions
from stepscope.api.analysing import analyse
from stepscope.api.options import keywords
from stepscope.model.result import Result


class Methods:
    """`p.window()`, `p.overlap(by="stage", rank="0,3-5")`: one method for each question of the registry."""

    def __getattr__(self, name: str) -> Callable[..., Result]:
        command = name.replace("_", "-")
        if name.startswith("_") or command not in questions.names():
            raise AttributeError(f"{type(self).__name__!r} has no table or analysis {name!r}")

        def ask(**options: Any) -> Result:
            return analyse(self, command, **options)  # type: ignore[arg-type]

        analysis = questions.get(command)
        ask.__name__ = ask.__qualname__ = name
        ask.__doc__ = f"{analysis.doc}\n\nOptions: {', '.join(keywords(analysis))}."
        return ask

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n.replace("-", "_") for n in questions.names())})
