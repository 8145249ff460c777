"""Skills for agents: how to capture, analyse and compare profiles with these commands.

A skill is a folder with a SKILL.md, in the form of agentskills.io, which many agents read. `install` copies them to
where an agent looks: by default into .claude/skills of the project that you are in.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import click

from stepscope.cli.declare import command_of
from stepscope.cli.suggest import Suggesting
from stepscope.errors import BadInput, meant_of
from stepscope.files import whole
from stepscope.files.skill_files import SKILLS, description, files_of, names
from stepscope.model.option import Shell

#: Where Claude Code looks for the skills of a project.
DEFAULT = ".claude/skills"


def _list() -> None:
    for name in names():
        click.echo(name)
        click.echo(textwrap.fill(description(name), 100, initial_indent="  ", subsequent_indent="  "))
    click.echo(f"\n`stepscope skill install` copies them to {DEFAULT}. They are in\n{SKILLS}")


def _show(
    name: Annotated[str, "", Shell(metavar="NAME")],
    file: Annotated[str, "", Shell(metavar="[FILE]")] = "SKILL.md",
) -> None:
    texts = {path.relative_to(SKILLS / name).as_posix(): path for path in files_of(_known(name))}
    if file not in texts:
        raise BadInput(f"{name} has no file {file}", f"give one of {', '.join(texts)}")
    click.echo(texts[file].read_text("utf-8"), nl=False)


def _install(
    name: Annotated[tuple[str, ...], "", Shell(metavar="[NAME...]", required=False)],
    *,
    to: Annotated[str, "The folder that skills go into.", Shell(metavar="DIR")] = DEFAULT,
    force: Annotated[bool, "Overwrite files that were changed."] = False,
) -> None:
    folder = Path(os.path.expanduser(to))  # noqa: PTH111 (pathlib fails where there is no such user)
    chosen = [_known(n) for n in dict.fromkeys(name)] or list(names())
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--to {folder}: is a file", "name a folder")
    pairs = list(_targets(chosen, folder))
    changed = [target for ours, target in pairs if _differs(ours, target)]
    if changed and not force:
        more = f" and {len(changed) - 1} more" * (len(changed) > 1)
        hint = "--force overwrites; --to DIR installs elsewhere; nothing was written"
        raise BadInput(f"{changed[0]}{more}: not what would be installed (edited, or of another version)", hint)
    for ours, target in pairs:
        same = target.is_file() and not _differs(ours, target)
        if not same:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                whole.write(target, ours.read_bytes(), "{}")
            except OSError as error:
                raise BadInput(f"--to {folder}: {error.strerror}", "name a folder that can be written") from None
        click.echo(f"{'unchanged' if same else 'overwrote' if target in changed else 'wrote':9}  {target}")


def _targets(chosen: list[str], folder: Path) -> Iterator[tuple[Path, Path]]:
    """Each file of the skills, and where it goes."""
    for name in chosen:
        for path in files_of(name):
            yield path, folder / path.relative_to(SKILLS)


def _differs(ours: Path, target: Path) -> bool:
    """Whether something else is there, a folder included."""
    if not target.exists():
        return False
    if not target.is_file():
        raise BadInput(f"{target}: is not a file", "move it away, or give --to DIR")
    return target.read_bytes() != ours.read_bytes()


def _known(name: str) -> str:
    if name not in names():
        raise BadInput(f"no skill {name}", meant_of(name, names()))
    return name


def _part(name: str, function: Callable[..., None], help: str) -> click.Command:
    made = command_of(function, name)
    made.help = help
    return made


command = Suggesting("skill", help=inspect.cleandoc(__doc__ or ""), no_args_is_help=True)
command.add_command(_part("list", _list, "The skills, what each is for, and where they are."))
command.add_command(_part("show", _show, "Print the SKILL.md of a skill, or another FILE of it."))
command.add_command(
    _part(
        "install",
        _install,
        "Copy skills (all, or those named) into a folder, and say what was written. Where a file was changed, "
        "nothing is written unless --force is given.",
    )
)
