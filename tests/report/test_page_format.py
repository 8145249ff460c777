"""The numbers of a column are written in the page as the command line writes them: in one unit."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from stepscope.model.alike import alike

SCRIPT = """
import { build } from "esbuild";
const { outputFiles } = await build({ entryPoints: ["src/format.ts"], bundle: true, format: "esm", write: false });
const page = await import("data:text/javascript," + encodeURIComponent(outputFiles[0].text));
const columns = JSON.parse(process.argv[1]);
const as = (make, column) => column.map(make(column));
console.log(JSON.stringify(columns.map((column) => [as(page.durations, column), as(page.sizes, column)])));
"""
#: A unit's edge, a value that is small beside the others, zeros, one value, nothing.
EDGES = [[999_960, 1, 20], [5_000_000_000, 3_000, 2_000], [0, 0], [0, 1_500], [None, 12], [None], [], [-1_250_000, 40]]


@pytest.mark.slow
def test_columns_are_those_of_the_command_line(page_tools: Path) -> None:
    chance = random.Random(5)
    drawn = [[int(10 ** chance.uniform(0, 12)) for _ in range(chance.randrange(1, 9))] for _ in range(300)]
    columns = [*EDGES, *drawn]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT, json.dumps(columns)],
        cwd=page_tools,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for column, (durations, sizes) in zip(columns, json.loads(done.stdout), strict=True):
        for ours, page in ((alike("dur_ns", column), durations), (alike("held_bytes", column), sizes)):
            assert len(ours) == len(page)
            for text, shown in zip(ours, page, strict=True):
                assert same(text, shown), (column, text, shown)


def same(text: str, shown: str) -> bool:
    """To the letter; what lies in the middle of two last digits is rounded by Python otherwise than by a browser."""
    if text == "-" or text == shown:
        return shown == ("–" if text == "-" else text)
    (ours, unit), (page, other) = text.split(), shown.split()
    decimals = len(ours.partition(".")[2])
    return (unit, decimals) == (other, len(page.partition(".")[2])) and abs(
        float(ours) - float(page)
    ) < 1.01 * 10**-decimals
