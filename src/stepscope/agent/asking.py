"""From a call to its answer: asked once, kept, given page by page, and as a resource where it is long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent

from stepscope.agent.answers import Asked, Detail, answer, plain_json
from stepscope.agent.failures import PREFIX, Refused, call
from stepscope.agent.kept import Kept, Recipe, first_of, key_of
from stepscope.agent.profiles import Profiles, state
from stepscope.errors import GateFailed
from stepscope.model.result import Result
from stepscope.render.json import to_json

Paths = str | list[str]

ANSWERS = "stepscope://answers/"
#: Longer lists of paths would have to be repeated in every call that an answer suggests.
_LONGEST_LIST = 4_000


class Desk:
    """Where the calls of one server are answered."""

    def __init__(self, profiles: Profiles) -> None:
        self.profiles = profiles
        self.roots = profiles.roots
        self._kept = Kept()

    def ask(
        self,
        tool: str,
        arguments: dict[str, Any],
        named: list[Paths | None],
        work: Callable[[str], Asked],
        detail: Detail,
        limit: int | None,
        cursor: str | None,
    ) -> CallToolResult:
        """The answer that `work` finds, or found before; `named` are the profiles that it is of."""
        given = {k: v for k, v in arguments.items() if v is not None}
        recipe = Recipe(work, lambda: key_of(tool, given, self._state(named)))
        key = recipe.key()
        first = first_of(cursor, key, detail, call(tool, **given, detail=detail))
        asked = self._kept.get(key)
        if asked is None:
            asked = work(key)
            asked.arguments = given
            self._kept.put(asked, recipe)
        body = answer(asked, detail, first, limit)
        if body["page"]["rows"] == body["page"]["of"] and "left_out" not in body:
            return told(body)
        body["resource"] = f"{ANSWERS}{key}.json"
        link = ResourceLink(
            uri=body["resource"],
            name=f"{key}.json",
            description=f"the whole answer, {body['page']['of']:,} rows, as JSON: for programs",
            mime_type="application/json",
        )
        return told(body, link)

    def whole(self, key: str) -> str | None:
        """All of an answer that was given, as the command line writes JSON; None where it cannot be had again."""
        asked = self._kept.get(key)
        if asked is None:
            recipe = self._kept.recipe(key)
            if recipe is None or recipe.key() != key:  # the files have changed since
                return None
            asked = recipe.work(key)
            self._kept.put(asked, recipe)
        return to_json(asked.result).decode()

    def typed(self, named: Paths | None) -> list[str]:
        """Paths as a person types them where the server runs."""
        texts = [named] if isinstance(named, str) else named or []
        return [self.roots.typed(text) for text in texts]

    def opened(self, named: Paths | None) -> list[str]:
        """The words of a command line that open a profile as this server does: its paths, and the rules it is read by.

        Nothing where the question is of no profile.
        """
        return [*self.typed(named), *(self.profiles.rules if named is not None else ())]

    def _state(self, named: list[Paths | None]) -> Any:
        return [state(self.roots.paths(short(paths))) for paths in named if paths is not None]


def short(named: Paths) -> Paths:
    """Refuse paths that are too many to be repeated."""
    if sum(map(len, named)) > _LONGEST_LIST and not isinstance(named, str):
        hint = "give their folder, or a glob"
        raise Refused("bad_argument", f"{len(named)} paths are too many", hint, call("list", what="files"))
    return named


def gated(work: Callable[[], Result]) -> tuple[Result, str | None]:
    """An answer, and what a limit that the options set has against it."""
    try:
        return work(), None
    except GateFailed as failed:
        if failed.result is None:
            raise
        return failed.result, str(failed)


def told(body: dict[str, Any], *more: ContentBlock) -> CallToolResult:
    """An answer as structured content, and the same as text."""
    body = plain_json(body)
    text = msgspec.json.encode(body).decode()
    return CallToolResult(content=[TextContent(text=text), *more], structured_content=body)


def full_name(tool: str) -> str:
    """The name that clients call a tool by."""
    return PREFIX + tool
