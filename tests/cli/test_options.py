"""From an annotation to an option."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import click
import pytest

from stepscope.api.options import Window
from stepscope.cli.declare import command_of, option_of
from stepscope.model.option import Option, OptionsOf, Shell
from stepscope.simulate.job.scenario import Scenario


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


class Weather(NamedTuple):
    """Options that commands share."""

    wind: Annotated[int, "Knots."] = 3
    rain: Annotated[bool, "Whether it rains."] = False


handed: dict[str, Any] = {}


def sail(
    boat: Annotated[tuple[str, ...], "", Shell(metavar="BOAT...")],
    *,
    to: Annotated[str, "Where to.", Shell(flags=("-t", "--to"), metavar="PORT")],
    crew: Annotated[int, "Hands.", Shell(between=(1, 9))] = 2,
    weather: Weather,
    window: Window,
    job: Annotated[dict[str, Any], OptionsOf(Scenario)],
    seen: Annotated[str, "", Shell(hidden=True, acts=lambda value: handed.update(seen=value))] = "no",
) -> None:
    handed.update(boat=boat, to=to, crew=crew, weather=weather, window=window, job=job)


def sailed(*words: str) -> dict[str, Any]:
    handed.clear()
    command_of(sail).main(list(words), standalone_mode=False)
    return handed


def test_a_function_is_a_command():
    given = sailed("gull", "tern", "-t", "Oslo", "--wind", "7", "--step", "--pp", "4", "--seen", "yes")
    assert (given["boat"], given["to"], given["crew"]) == (("gull", "tern"), "Oslo", 2)
    assert given["weather"] == Weather(7, False)
    assert given["window"] == {"step": True}, "keywords are those that say something"
    assert sailed("gull", "-t", "Oslo", "--index", "0", "--index", "median")["window"] == {}
    given = sailed("gull", "tern", "-t", "Oslo", "--pp", "4", "--seen", "yes")
    assert given["job"]["pp"] == 4 and given["job"]["ep"] == Scenario().ep and "faults" not in given["job"]
    assert given["seen"] == "yes", "called while the line is parsed"


@pytest.mark.parametrize("words", [["-t", "Oslo"], ["gull"], ["gull", "-t", "Oslo", "--crew", "10"]])
def test_what_a_signature_does_not_allow_is_refused(words):
    with pytest.raises(click.UsageError):
        sailed(*words)


def test_help_is_what_the_annotations_say():
    text = command_of(sail).get_help(click.Context(command_of(sail), info_name="sail"))
    assert text.startswith("Usage: sail [OPTIONS] BOAT...") and "From an annotation to an option." in text
    assert "-t, --to PORT" in text and "The step, from the end of the one before it to" in text
    assert "--seen" not in text
