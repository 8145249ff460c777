"""What the tools answer, as types: their JSON schemas are the output schemas that clients see and check."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict


class Call(TypedDict):
    """A call that can be sent as it is."""

    tool: str
    arguments: dict[str, Any]


class Page(TypedDict):
    """Which rows these are. Rows that are left out are never left out silently."""

    first: Annotated[int, Field(description="number of the first row here, from 0")]
    rows: Annotated[int, Field(description="rows here")]
    of: Annotated[int, Field(description="rows in all")]
    order: Annotated[str, Field(description="how all rows are ordered")]
    next: Annotated[Call | None, Field(description="the call for the next rows; null where there are none")]


class Answer(TypedDict):
    """Rows with what they rest on."""

    command: Annotated[str, Field(description="the command line that prints the same, for people")]
    statement: NotRequired[Annotated[str, Field(description="the answer in a sentence")]]
    profile: Annotated[str, Field(description="files and ranks that were asked")]
    window: Annotated[list[Any], Field(description="what stretch of the capture the figures are of")]
    rows: list[dict[str, Any]]
    page: Page
    summary: Annotated[dict[str, Any], Field(description="figures over all rows")]
    notes: Annotated[list[dict[str, Any]], Field(description="what bounds the figures; read them before you conclude")]
    gate: NotRequired[Annotated[str, Field(description="there if a limit that the options set does not hold")]]
    left_out: NotRequired[Annotated[dict[str, str], Field(description="what is not here, and how to get it")]]
    resource: NotRequired[Annotated[str, Field(description="URI of the whole answer, where this is a part of it")]]


class Overview(TypedDict):
    """What a profile holds, and what can be asked of it."""

    profile: Annotated[str | list[str], Field(description="as the other tools take it")]
    files: list[str]
    ranks: int
    world: int | None
    hosts: list[str]
    gpus: list[str]
    mesh: Annotated[dict[str, int], Field(description="size of each axis of parallelism, as far as labels say")]
    recorded: Annotated[list[str], Field(description="tables that were recorded")]
    missing: Annotated[
        list[str], Field(description="tables that were not; questions that need them cannot be answered")
    ]
    window: Annotated[list[str], Field(description="what overlap, exposed and streams look at; others: the step")]
    streams: str
    notes: list[dict[str, Any]]
    ask: Annotated[list[dict[str, Any]], Field(description="questions, each with its call")]
    left_out: NotRequired[dict[str, str]]


class Listing(TypedDict):
    """Things that there are."""

    what: str
    items: list[dict[str, Any]]
    page: Page
    notes: list[str]


class Description(TypedDict):
    """All about one analysis, table or subject."""

    name: str
    kind: str
    text: str
    options: Annotated[dict[str, Any], Field(description="JSON schema of each option; empty for a table")]
    columns: Annotated[dict[str, str], Field(description="columns of the rows, and what they mean")]
    variants: Annotated[dict[str, dict[str, Any]], Field(description="columns under an option that changes them")]
    example: Call | None
