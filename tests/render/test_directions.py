"""A mark that turns the direction of a text (U+202E) is written out on every page, not obeyed."""

from __future__ import annotations

import json

import pytest

from stepscope.render.inert import escape, shown_json

MARKS = "\u061c\u200e\u200f\u202a\u202e\u2066\u2069"


@pytest.mark.parametrize("mark", MARKS)
def test_marks_are_written_out(mark: str) -> None:
    text = f"gemm{mark}<b>"
    written = f"\\u{ord(mark):04x}"
    assert escape(text) == f"gemm{written}&lt;b&gt;"
    data = {"name": text, f"key{mark}": [text]}
    page = shown_json(json.dumps(data, ensure_ascii=False))
    assert mark not in page
    assert json.loads(page) == {"name": f"gemm{written}<b>", f"key{written}": [f"gemm{written}<b>"]}


def test_a_page_with_a_hostile_name_shows_it(tmp_path) -> None:
    from fake import make, nvtx, op
    from stepscope import api
    from stepscope.render.notebook import answer_html

    profile = make(ops=[op(0, 10, "evil\u202elenrek")], ranges=[nvtx(0, 20, "step \u202e0")])
    html = answer_html(api.analyse(profile, "kernels"))
    assert "\u202e" not in html and "\\u202e" in html
