"""Pages share one shell and one palette: every colour that a sheet names exists, and no sheet has one of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stepscope
from stepscope.render.html import recipe
from stepscope.render.html.palette import COLOURS, SERIES, variables
from stepscope.render.html.shell import page

SHEETS = {
    "report": (Path(stepscope.__file__).parent / "render" / "html" / "bundle" / "report.css").read_text("utf-8"),
    "recipe": recipe._STYLE,
}


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_sheet_names_colours_of_the_palette_and_has_none_of_its_own(sheet: str):
    named = set(re.findall(r"var\(--([\w-]+)\)", SHEETS[sheet])) - {"mono"}
    assert named and named <= set(COLOURS)
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b", SHEETS[sheet])


def test_both_themes_have_every_colour():
    light, media, dark = variables().splitlines()
    for theme, index in ((light, 0), (media, 1), (dark, 1)):
        declared = dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6,8})", theme))
        assert declared == {name: both[index] for name, both in COLOURS.items()}
    assert set(SERIES) <= set(COLOURS)


def test_a_title_is_text_and_nothing_is_asked_of_a_network():
    html = page("</title><script>alert(1)</script>", "p{}", "<p>x</p>")
    assert "<script>alert" not in html and "default-src 'none'" in html
    assert "script-src" not in html
    assert "script-src 'unsafe-inline'" in page("t", "", "", scripts=True)
