"""The page of `stepscope serve`: the same code as the report's, with its script and style as files of their own.

Nothing is inline, so that the server's Content-Security-Policy can forbid all that is.
"""

from __future__ import annotations

from stepscope.render.html.shell import bundled, head, sheet


def served_page() -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head("timeline")}<link rel="stylesheet" href="/serve.css">\n'
        '<link rel="icon" href="data:,">\n'
        '</head>\n<body>\n<div id="page"><p class="dim">reading…</p></div>\n<script src="/serve.js"></script>\n'
        "</body>\n</html>\n"
    )


def script() -> str:
    return bundled("serve.js")


def style() -> str:
    return sheet(bundled("serve.css"))
