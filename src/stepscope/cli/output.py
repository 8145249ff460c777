"""Where an answer goes: standard output or a file, in the format that was asked for. Inputs are never overwritten."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stepscope.cli import progress, streams
from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.model.result import Result
from stepscope.model.visible import visible
from stepscope.render import SUFFIXES, WITHOUT_NOTES, Format, render_blocks
from stepscope.render.table import PIPED_WIDTH


@dataclass(frozen=True)
class Target:
    """A format and a file; no file is standard output."""

    format: Format
    file: Path | None

    @classmethod
    def of(cls, file: str | None, format: Format | None) -> Target:
        """From `-o` and `--format`; checked before any work is done."""
        path = None if file in (None, "-") else Path(str(file))
        if format is None and path is not None:
            format = SUFFIXES.get(path.suffix.lower())
            if format is None:
                raise BadInput(
                    f"-o {path}: the suffix names no format", f"end it in {', '.join(SUFFIXES)}, or give --format"
                )
        if path is not None:
            writable(path)
        if format == "parquet" and path is None and sys.stdout.isatty():
            raise BadInput("parquet is binary, and standard output is a terminal", "give -o FILE, or pipe it")
        return cls(format or "table", path)

    def spare(self, inputs: Iterable[Path]) -> None:
        """Refuse to write over what was read."""
        if self.file is None or not self.file.exists():
            return
        for path in inputs:
            if path.exists() and (path.samefile(self.file) or path.resolve() in self.file.resolve().parents):
                if path.is_dir() and not path.samefile(self.file) and self.file.suffix != ".parquet":
                    continue  # an answer kept beside the traces
                raise BadInput(f"-o {self.file}: is one of the inputs", "choose another file")

    def write(self, result: Result) -> None:
        """Render and deliver; notes that the format cannot hold go to stderr."""
        if self.file is None:
            self._deliver(render_blocks(result, self.format, width=_width(), colour=colour()))
        else:
            self._deliver(render_blocks(result, self.format))
        if self.format in WITHOUT_NOTES:
            for note in result.notes:
                print("note:", visible(note), file=sys.stderr)

    def deliver(self, data: bytes) -> None:
        """Write what is rendered already."""
        self._deliver([data])

    def _deliver(self, blocks: Iterable[bytes]) -> None:
        if self.file is not None:
            whole.write(self.file, blocks)
            return
        for block in blocks:
            progress.hide()
            _to_stdout(block)


def writable(path: Path) -> Path:
    """`path`, if a file could be there."""
    if path.is_dir():
        raise BadInput(f"-o {path}: is a directory", "name a file in it")
    if not path.parent.is_dir():
        raise BadInput(f"-o {path}: no directory {path.parent}", "make it first")
    return path


def page() -> tuple[int, bool]:
    """Width of what standard output shows, and whether it is styled."""
    return _width(), colour()


def _width() -> int:
    """The terminal's width; a fixed one when piped, so that scripts see the same text everywhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH


def colour() -> bool:
    """Whether to style: on a terminal, unless told not to."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _to_stdout(data: bytes) -> None:
    streams.need_stdout()
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # a stand-in for stdout that takes text only
        sys.stdout.write(data.decode())
    else:
        buffer.write(data)
    sys.stdout.flush()
