"""What a profiler left in the folder of a capture: its reports, their exports, and where each of them belongs.

Of `capture run --every`, each stretch of the run is a capture of its own, in a folder `stretch-N`, with the manifest of
the whole: profilers number the files of one process.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope import progress
from stepscope.capture import manifest, private, watch
from stepscope.capture.spec import Spec
from stepscope.errors import BadInput, StepscopeError

#: What the command said, beside the capture.
LOG = "log.txt"
#: Makes the SQLite export of a report in a folder: (report, folder, nsys).
Export = Callable[[Path, Path, str], Path]
#: A file of the N-th stretch: `node0.host.N.nsys-rep`.
_OF_STRETCH = re.compile(r"(.+)\.(\d+)(\.(?:nsys-rep|sqlite|pt\.trace\.json\.gz))")


def reports(folder: Path, backend: str) -> list[Path]:
    return sorted(folder.glob("*.nsys-rep" if backend == "nsys" else "*.pt.trace.json.gz"))


def collected(spec: Spec, backend: str, folder: Path, export: Export) -> list[Path]:
    paths = reports(folder, backend)
    if not paths:
        tool = "nsys wrote no report" if backend == "nsys" else "torch.profiler wrote no trace"
        raise BadInput(f"{tool}: {watch.reason(folder / LOG)}", "see stepscope capture doctor")
    for raw in folder.glob("*.qdstrm"):  # what nsys made the report of: it may leave it behind
        if raw.with_suffix(".nsys-rep").is_file():
            raw.unlink()
    if spec.every:
        paths = [_in_its_folder(file) for file in paths]
    if backend != "nsys":
        return paths
    made = []
    for i, report in enumerate(paths):
        progress.report("exporting", i, len(paths))
        try:
            made.append(export(report, report.parent, spec.nsys))
            private.keep_named(made[-1], spec.told)
        except (StepscopeError, sqlite3.Error) as error:
            if not isinstance(error, StepscopeError):
                raise BadInput(f"{made[-1]}: its environment cannot be taken out ({error})", "capture again") from None
            raise BadInput(f"the report is damaged: {error.message}", error.hint) from None
    return made


def _in_its_folder(file: Path) -> Path:
    """`rank0.host.3.pt.trace.json.gz` as `stretch-3/rank0.host.pt.trace.json.gz`; one without a number stays."""
    match = _OF_STRETCH.fullmatch(file.name)
    if match is None:
        return file
    moved = file.parent / f"stretch-{match[2]}" / f"{match[1]}{match[3]}"
    moved.parent.mkdir(exist_ok=True)
    return file.replace(moved)


def write_manifests(folder: Path, files: list[Path], content: dict[str, Any]) -> None:
    """The manifest of the capture, and one beside the files of each stretch."""
    manifest.write(folder, content)
    for of_stretch in {file.parent: None for file in files if file.parent != folder}:
        own = [{"name": f.name, "bytes": f.stat().st_size} for f in files if f.parent == of_stretch]
        manifest.write(of_stretch, {**content, "captured": {**content["captured"], "files": own}})
