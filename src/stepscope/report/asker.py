"""How the report asks: every figure is an analysis' answer, and carries the command line that gives it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stepscope import questions
from stepscope.model.command_line import command_line, flags
from stepscope.model.result import Result


@dataclass(frozen=True)
class Asker:
    """A profile, the window that was chosen for all questions, and who answers them (`api.analyse`)."""

    answer: Callable[..., Result]
    #: as the user named them
    paths: tuple[str, ...]
    window: dict[str, Any] = field(default_factory=dict)
    rank: str | None = None
    #: options that say by which rules the profile is read: `--labels megatron`
    rules: tuple[str, ...] = ()
    #: for the snapshots of the allocator that were given beside the profile
    of_memory: Asker | None = None
    #: who answers questions about one rank of it
    of_rank: Callable[[int], Callable[..., Result]] | None = None

    def ask(self, name: str, **options: Any) -> Result:
        """The answer to `name`, in the window where the question has one."""
        return self.answer(name, **{**options, **self._window(name)})

    def ask_each(self, name: str, ranks: Iterable[int], **options: Any) -> Iterator[Result]:
        """The answers to `name` that make up the one about these ranks.

        Of all of a capture, a rank at a time: those of all together may be hundreds of MB. Which step is asked about
        may rest on all ranks.
        """
        if self.of_rank is None or not options.get("whole"):
            yield self.ask(name, **options)
            return
        for rank in ranks:
            yield self.of_rank(rank)(name, **{**options, **self._window(name)})

    def command(self, name: str, *words: str, **options: Any) -> str:
        """The command line that prints the same."""
        chosen = {**options, **self._window(name), **({"rank": self.rank} if self.rank else {})}
        return command_line(name, *self.paths, *self.rules, *words, *flags(chosen))

    def _window(self, name: str) -> dict[str, Any]:
        windowed = name == "report" or questions.get(name).windowed
        return dict(self.window) if windowed else {}
