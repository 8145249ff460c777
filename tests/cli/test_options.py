"""From an annotation to an option."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal

import click
import pytest

from stepscope.cli.analysis import option_of
from stepscope.questions import Option


def parse(hint: Any, default: Any, *arguments: str) -> Any:
    command = click.Command("x", params=[option_of(Option("some_thing", hint, default, "help"))])
    return command.make_context("x", list(arguments)).params["some_thing"]


@pytest.mark.parametrize(
    ("hint", "default", "arguments", "value"),
    [
        (Literal["stage", "op"], "stage", [], "stage"),
        (Literal["stage", "op"], "stage", ["--some-thing", "op"], "op"),
        (Literal["stage", "op"] | None, None, ["--some-thing", "op"], "op"),
        (bool, False, ["--some-thing"], True),
        (bool, True, [], True),
        (bool, True, ["--no-some-thing"], False),
        (int, 3, ["--some-thing", "4"], 4),
        (int | None, None, [], None),
        (int | None, None, ["--some-thing", "4"], 4),
        (float, 0.3, ["--some-thing", "0.5"], 0.5),
        (str | None, None, ["--some-thing", "a"], "a"),
        (Path | None, None, ["--some-thing", "a"], Path("a")),
        (tuple[str, ...], (), ["--some-thing", "a", "--some-thing", "b"], ("a", "b")),
    ],
)
def test_option(hint, default, arguments, value):
    assert parse(hint, default, *arguments) == value


def test_what_has_no_default_is_required():
    with pytest.raises(click.MissingParameter):
        parse(int, inspect.Parameter.empty)


def test_other_values_are_refused():
    with pytest.raises(click.BadParameter):
        parse(Literal["stage", "op"], "stage", "--some-thing", "layer")
