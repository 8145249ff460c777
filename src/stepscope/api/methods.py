"""Questions as methods of a profile. `make docs` writes their signatures, for editors, into `methods.pyi`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from stepscope import questions
from stepscope.api.analysing import analyse
from stepscope.api.options import Ranks, keywords, window_spec
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import meant
from stepscope.model.result import Result


class Methods:
    """`p.window()`, `p.overlap(by="stage", rank="0,3-5")`: one method for each question of the registry."""

    def __getattr__(self, name: str) -> Callable[..., Result]:
        command = name.replace("_", "-")
        if name.startswith("_") or command not in questions.names():
            near = meant(name, (n.replace("-", "_") for n in questions.names())) if not name.startswith("_") else None
            raise AttributeError(
                f"{type(self).__name__!r} has no table or analysis {name!r}{f'; {near}' if near else ''}"
            )

        def ask(**options: Any) -> Result:
            return analyse(self, command, **options)  # type: ignore[arg-type]

        analysis = questions.get(command)
        ask.__name__ = ask.__qualname__ = name
        ask.__doc__ = f"{analysis.doc}\n\nOptions: {', '.join(keywords(analysis))}."
        ask.__signature__ = _signature(analysis)  # type: ignore[attr-defined]
        return ask

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n.replace("-", "_") for n in questions.names())})

    def stats(self, name: str, *, rank: Ranks | None = None, **arguments: Any) -> Result:
        """A report of `nsys stats`: `p.stats("cuda_gpu_kern_sum", base=True)`. Times are in ns, sizes in bytes.

        Arguments are those that the report takes after its name, and start, end (ns, or "1ms") and nvtx.
        """
        from stepscope.api import nsys

        return nsys.stats(self, name, rank=rank, **arguments)  # type: ignore[arg-type]

    def rules(self, name: str, *, rank: Ranks | None = None, **arguments: Any) -> Result:
        """A rule of `nsys analyze`: `p.rules("gpu_gaps", gap="800us")`."""
        from stepscope.api import nsys

        return nsys.rules(self, name, rank=rank, **arguments)  # type: ignore[arg-type]

    def recipe(self, name: str, *, table: str | None = None, rank: Ranks | None = None, **arguments: Any) -> Result:
        """A recipe of `nsys recipe`: `p.recipe("nccl_sum", table="rank_stats")`. See docs/recipes.md."""
        from stepscope.api import nsys

        return nsys.recipe(self, name, table=table, rank=rank, **arguments)  # type: ignore[arg-type]


def _signature(analysis: questions.Analysis) -> inspect.Signature:
    """What notebooks complete and show: every keyword with its default."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = {o.name: inspect.Parameter(o.name, keyword, default=o.default, annotation=o.type) for o in analysis.options}
    shared = {**_chosen(WindowSpec), **_chosen(window_spec), **_chosen(analyse)}
    return inspect.Signature([own.get(k) or shared[k] for k in keywords(analysis)], return_annotation=Result)


def _chosen(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Its parameters that have defaults, as keywords."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters if p.default is not p.empty}
