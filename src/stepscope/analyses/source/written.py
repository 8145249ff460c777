"""What `source` writes beside its answer: collapsed stacks, and a script that runs an op again."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analyses.source.chosen import script_for
from stepscope.derive.windows.window import Windows
from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.model.profile import Profile

NO_FRAME = "(no frame)"


def write_script(profile: Profile, chosen: Windows, asked: str, file: Path) -> str:
    """Write the script; what it runs, in a sentence."""
    text, what = script_for(profile, chosen, asked)
    file = Path(file)
    _not_an_input(profile, file, "--script-to")
    whole.write(file, text.encode(), "--script-to {}")
    return f"{file} runs {what} again, times it and says how far it is from its roof: python {file}."


def write_stacks(profile: Profile, frame: pl.DataFrame, file: Path) -> None:
    """Collapsed stacks, heaviest first: frames, then the pass, the op and the kernel."""
    clean = [pl.col(c).str.replace_all(r";|\s*\n\s*", ":") for c in ("op", "kernel")]
    parts = [
        "rank " + pl.col("rank").cast(pl.String),
        pl.col("stack").fill_null(NO_FRAME),
        "[" + pl.col("phase") + "]",
        *clean,
    ]
    lines = (
        frame.select(pl.concat_str(parts, separator=";", ignore_nulls=True).alias("stack"), "ns")
        .group_by("stack")
        .agg(pl.col("ns").sum())
        .filter(pl.col("ns") > 0)
        .sort(["ns", "stack"], descending=[True, False])
    )
    file = Path(file)
    _not_an_input(profile, file, "--stacks")
    whole.write(file, "".join(f"{stack} {ns}\n" for stack, ns in lines.iter_rows()).encode(), "--stacks {}")


def _not_an_input(profile: Profile, file: Path, option: str) -> None:
    if profile.reads(file):
        raise BadInput(f"{option} {file}: is one of the inputs", "choose another file")
