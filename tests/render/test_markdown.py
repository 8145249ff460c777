"""`--format md`: what one would paste into an issue, read back as a forge reads it."""

from __future__ import annotations

import csv
import io
import re

import polars as pl
import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.cli.main import run
from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.render import render
from stepscope.render.md import code, fenced, prose, table

MS = 1_000_000
LONG_NAME = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<Shape<int,int,int>, Mainloop>>(Params)"


def text_of(result: Result) -> str:
    return render(result, "md").decode()


def cells(text: str) -> list[list[str]]:
    """Rows of the first table as GitHub splits them: at bars that no backslash precedes."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    block = lines[first : first + next(i for i, line in enumerate([*lines[first:], ""]) if not line.startswith("|"))]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block]


def test_numbers_have_units_and_stand_to_the_right():
    rows = pl.DataFrame({"rank": [0], "busy_ns": [1_500_000], "sent_bytes": [2048], "busy_pct": [12.345], "why": ["x"]})
    header, rule, row = cells(text_of(Result(rows, command="made")))
    assert header == ["rank", "busy", "sent", "busy %", "why"]
    assert rule == ["---:", "---:", "---:", "---:", "---"]
    assert row == ["0", "1.500\u00a0ms", "2.000\u00a0KiB", "12.3%", "x"]


def test_headings_are_unique():
    rows = pl.DataFrame({"x_ns": [1], "x_bytes": [2], "x_pct": [3.0], "a_b": [1], "a b": [2]})
    header = cells(text_of(Result(rows, command="made")))[0]
    assert len(set(header)) == len(header) == 5


def test_names_are_code_and_short_and_prose_wraps():
    prose = "the launching thread waited for the loader, which read a file from a disk that was slow"
    rows = pl.DataFrame({"name": [LONG_NAME, "a|b"], "why": [prose, None], "thread": [None, None]})
    text = text_of(Result(rows, command="made"))
    header, _, first, second = cells(text)
    assert header == ["name", "why"] and "without a value: thread" in text
    assert re.fullmatch(r"`[^`]{8,40}`", first[0]) and first[1] == prose
    assert second == ["`a\\|b`", ""]


def test_what_is_not_shown_is_said():
    wide = pl.DataFrame(
        {"rank": [0, 1], **{f"figure_{c}_of_many_ns": [n, n + 1] for n, c in enumerate("abcdefghijkl")}}
    )
    text = text_of(Result(wide, command="made"))
    dropped = re.search(r"^not shown: (.*) \(--format csv or json\)", text, re.MULTILINE)
    assert dropped and len(cells(text)[0]) + len(dropped[1].split(", ")) == wide.width


def test_long_lists():
    """A list by weight shows ten and says how to see all; rows that have no weight are all there, but folded."""
    rows = pl.DataFrame({"rank": range(40), "total_ns": range(40)})
    ranked = text_of(Result(rows, command="made", ranked_by="total_ns"))
    assert len(cells(ranked)) == 12 and "… and 30 more (--top 0 shows all)" in ranked
    others = text_of(Result(rows, command="made"))
    assert len(cells(others)) == 12 and "<summary>30 more rows</summary>" in others
    assert len(re.findall(r"^\| \d+ \|", others, re.MULTILINE)) == 40


def test_few_notes_are_lines_and_many_are_folded():
    notes = [Note("test", f"it was so {k}", severity="info", origin="analysis") for k in range(4)]
    rows = pl.DataFrame({"rank": [0]})
    assert "- note: it was so 2\n" in text_of(Result(rows, command="made", notes=notes[:3]))
    many = text_of(Result(rows, command="made", notes=notes))
    assert "<summary>4 notes</summary>\n\n- note: it was so 0\n" in many


def test_findings_are_a_list():
    us = 1000
    ops = [op(k * 100 * us, (k * 100 + 40) * us, call=k) for k in range(1, 11)]
    calls = [call((k * 100 - 20) * us, (k * 100 - 15) * us, k) for k in range(1, 11)]
    profile = make(ops=ops, calls=calls, ranges=[nvtx(0, 1100 * us, "step 0"), nvtx(1101 * us, 1102 * us, "step 1")])
    result = api.analyse(profile, "diagnose", index=0, least=0)
    text = text_of(result)
    line = r"^(\d+)\. \*\*(.+)\*\*  \n   could save (?:up to )?[\d.]+ .* cause \w+ \(`(.+)`\)$"
    found = re.findall(line, text, re.M)
    assert [(int(n), id) for n, _, id in found] == list(enumerate(result.rows["id"], 1)) and found
    assert text.count("   - try: ") == text.count("   - see: `stepscope ") == len(found)
    assert text.rstrip().splitlines()[-1] == f"**{prose(result.summary['statement'])}**"


def test_trees_are_indented():
    ranges = [nvtx(0, 100, "outer"), nvtx(10, 20, "inner")]
    profile = make(ops=[op(12, 90, call=1)], calls=[call(11, 12, 1)], ranges=ranges)
    body = cells(text_of(api.analyse(profile, "nvtx", whole=True)))
    at = body[0].index("range")
    assert [row[at] for row in body[2:]] == ["`outer`", "&emsp;`inner`"]


@pytest.mark.parametrize("text", ["a `b|c` d", "`", "``x``", "a ` b", "`` ` ``", "@me `@you` #1", "a <b>`</b>`"])
def test_prose_quotes_code_and_escapes_the_rest(text: str):
    outside = re.sub(r"(?<!\\)(`+)[^`]+\1(?!`)", "", prose(text))
    assert not re.search(r"(?<!\\)`|<(?!!--)|@\w|#\d", outside)


def test_a_bar_in_code_stays_in_its_cell():
    assert cells("\n".join(table(["a", "b"], [[code("x|y"), prose("z | w")]])))[2] == ["`x\\|y`", "z \\| w"]


def test_a_fence_is_longer_than_what_it_holds():
    assert fenced(["```", "x"])[0] == "````"


def test_reports_of_nsys(tmp_path, capsys):
    shape = "--schedule ddp --pp 1 --ep 1 --dp 2 --layers 2 --micro-batches 1 --steps 2"
    assert run(["simulate", *shape.split(), "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert run(["stats", str(tmp_path), "-r", "cuda_gpu_kern_sum", "-f", "md"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("**CUDA GPU Kernel Summary** (`cuda_gpu_kern_sum`)\n\n| Time (%) | Total Time (ns) |")
    assert run(["stats", str(tmp_path), "-r", "cuda_gpu_kern_sum", "-f", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    shown = [row[1] for row in cells(text)[2:]]
    assert len(shown) >= 5 and shown == [row["Total Time (ns)"] for row in rows][: len(shown)]
    assert len(shown) == len(rows) or f"… and {len(rows) - 10} more (`-f csv` has all)" in text
