"""What every page is in: one HTML document that asks no network anything, in one palette.

The page's own policy (`Content-Security-Policy`) forbids every request, so that even a mistake could not make one.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import stepscope
from stepscope.render.html.palette import variables
from stepscope.render.inert import escape

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SCRIPTS = "; script-src 'unsafe-inline'"
#: What all pages share beside their colours.
_BASE = """:root{--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
p{margin:4px 0}
.dim{color:var(--dim)}
"""


def page(title: str, style: str, body: str, *, scripts: bool = False) -> str:
    """The document. `style` and `body` are markup; `title` is a text. Only `scripts` in `body` may run."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n'
        f"{head(title, policy=_POLICY + _SCRIPTS * scripts)}"
        f"<style>{sheet(style)}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def head(title: str, *, policy: str | None = None) -> str:
    """What the head of every page says; `policy` where the page itself must say it, as no server does."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' if policy else ""
    return (
        f'<meta charset="utf-8">\n{meta}'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta name="generator" content="stepscope {escape(stepscope.__version__, quote=True)}">\n'
        f"<title>{escape(title)} · stepscope</title>\n"
    )


def sheet(style: str) -> str:
    """A page's style sheet: colours, what all pages share, and its own."""
    return f"{variables()}{_BASE}{style}"


@cache
def bundled(name: str) -> str:
    """A file of the pages' bundle, which `make page` builds from page/."""
    return files("stepscope.render.html").joinpath("bundle", name).read_text("utf-8")
