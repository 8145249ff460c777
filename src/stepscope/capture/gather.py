"""One folder of what the nodes and profilers of a job left in several: `capture merge`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepscope.capture import manifest
from stepscope.capture.collecting import LOG
from stepscope.capture.run import COMPILER_LOGS
from stepscope.errors import BadInput
from stepscope.files.whole import building

#: What a run leaves in folders beside its profiles, a file per rank: torch.compile's logs, `annotate.items`, its steps.
_PER_RANK = (COMPILER_LOGS, "items", "steps")


def gather(captures: Mapping[str, Sequence[Path]], out: Path) -> dict[str, list[Path]]:
    """By profiler, where the files of each capture lie now: in `out`, or of several in a folder of `out` each.

    Files are linked, or copied where that cannot be: it takes no space on one disk. All of it or nothing.
    """
    if out.exists():
        raise BadInput(f"-o {out}: already exists", "name another folder, or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"-o {out}: cannot be made ({error.strerror})", "name another folder") from None
    with building(out) as part:
        made = {name: _one(paths, part / name if len(captures) > 1 else part) for name, paths in captures.items()}
    return {name: [out.absolute() / path.relative_to(part) for path in paths] for name, paths in made.items()}


def _one(paths: Sequence[Path], to: Path) -> list[Path]:
    """The profiles of one capture in one folder, with what lies beside them, and one manifest."""
    to.mkdir(parents=True)
    folders = list(dict.fromkeys(path.parent for path in paths))
    names = [path.name for path in paths]
    made = []
    for path in paths:
        # Two nodes may both have a `report1`: their folders tell them apart.
        prefix = f"{path.parent.name}." if names.count(path.name) > 1 else ""
        made.append(_link(path, to / f"{prefix}{path.name}"))
        report = path.with_suffix(".nsys-rep")
        if report.is_file() and report != path:
            _link(report, to / f"{prefix}{report.name}")
    for folder in folders:
        for kind in _PER_RANK:
            for file in sorted((folder / kind).glob("*")):
                (to / kind).mkdir(exist_ok=True)
                _link(file, to / kind / file.name)
        if (folder / LOG).is_file():
            _link(folder / LOG, to / (LOG if len(folders) == 1 else f"log.{folder.name}.txt"))
    content = manifest.of_folders(folders)
    if content is not None:
        manifest.write(to, {key: value for key, value in content.items() if key != "schema"})
    return made


def _link(path: Path, to: Path) -> Path:
    if to.exists():
        raise BadInput(f"{path}: {to.name} comes from two folders", "rename one of them; were they two runs?")
    if path.is_dir():
        shutil.copytree(path, to, copy_function=_link_file)
    else:
        _link_file(str(path), str(to))
    return to


def _link_file(path: str, to: str) -> None:
    try:
        os.link(path, to)
    except OSError:
        shutil.copy2(path, to)
