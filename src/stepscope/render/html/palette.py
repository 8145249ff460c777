"""The colours of every page, light and dark: the report's, and those of recipes.

Style sheets name them as variables (`var(--compute)`); what a colour is stands here alone.
"""

from __future__ import annotations

#: By name: in the light theme, in the dark one.
COLOURS = {
    # the page itself
    "ink": ("#1b1f24", "#e7eaee"),
    "dim": ("#616a76", "#98a2b0"),
    "paper": ("#ffffff", "#14171c"),
    "panel": ("#f5f6f8", "#1c2027"),
    "line": ("#e2e5e9", "#2d333d"),
    "accent": ("#c2255c", "#ff7aa8"),
    "link": ("#2457b8", "#8db6ff"),
    "shadow": ("#0000002e", "#0000002e"),
    # ops, in three shades, so that neighbours differ
    "compute": ("#4878d0", "#5d8fe8"),
    "compute-2": ("#5b8ae0", "#72a0f0"),
    "compute-3": ("#3a66b8", "#4c7cd2"),
    "comm": ("#e8833a", "#f0913f"),
    "comm-2": ("#f0954f", "#f7a55c"),
    "comm-3": ("#d97328", "#dc7d2b"),
    "copy": ("#8a63c9", "#a27ee6"),
    "copy-2": ("#9b78d6", "#b393ee"),
    "copy-3": ("#7a53ba", "#8f6ad6"),
    # ranges, and calls of CUDA
    "range": ("#dfe6ee", "#303a47"),
    "range-2": ("#e6e1f0", "#373349"),
    "range-3": ("#dcebe4", "#2c3f3a"),
    "call": ("#b3c0cf", "#4e5d70"),
    "call-2": ("#c3b8d6", "#5a5275"),
    "call-3": ("#afcabd", "#47665c"),
    # what else the host ran
    "torch": ("#cfe6d3", "#2d4a37"),
    "torch-2": ("#dcebcb", "#3b4a2c"),
    "torch-3": ("#c5e2e0", "#2a4849"),
    "python": ("#f1e4bf", "#4b4226"),
    "python-2": ("#f5ead0", "#534a31"),
    "python-3": ("#ecdac4", "#4c3d2d"),
    # what is not work
    "idle": ("#d3d8df", "#3b424d"),
    "onmark": ("#ffffff", "#0f1216"),
    "hidden": ("#f6cfae", "#6b4526"),
    "barrier": ("#a9b3c0", "#5a6675"),
    "wait": ("#c5ccd6", "#4a5260"),
    "late": ("#d6336c", "#ff6b9a"),
    # causes of idle time
    "idle-host": ("#d6455d", "#e0586f"),
    "idle-sync": ("#a83279", "#c2549a"),
    "idle-alloc": ("#e58a9b", "#a85468"),
    "idle-load": ("#c96f4a", "#c77b58"),
    "idle-api": ("#eebcc6", "#7d4a56"),
    # chunks of a pipeline
    "chunk-f": ("#6ea8e8", "#74aef0"),
    "chunk-b": ("#2f62b0", "#3f74c6"),
    "chunk-w": ("#4fa98a", "#57b394"),
    "chunk-bw": ("#2b7f77", "#379088"),
    "chunk-fb": ("#8a63c9", "#a27ee6"),
}
#: Colours of series that mean nothing but "another one".
SERIES = ("compute", "comm", "chunk-w", "late", "copy", "chunk-bw", "idle-load", "barrier")


def variables() -> str:
    """The style sheet that declares them: as the reader's system says, unless the page's own button says otherwise."""
    light, dark = (_declared(theme) for theme in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
    )


def _declared(theme: int) -> str:
    return ";".join(f"--{name}:{both[theme]}" for name, both in COLOURS.items())
