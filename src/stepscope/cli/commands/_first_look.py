"""A short diagnosis of a profile, and what else one may ask."""

from __future__ import annotations

import shlex

from stepscope.cli import output, progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import Profiles, Reading

#: What to ask first, by what has to be recorded for it.
_FIRST = (("ops", "diagnose"), ("measured", "roofline"), ("blocks", "memory"))


def _look(profile: Profiles, *, reading: Reading) -> None:
    from stepscope import api
    from stepscope.render.findings import first_findings_text

    target = output.Target.of(None, None)
    with progress.shown():
        opened = reading.open(profile)
        question = next((q for table, q in _FIRST if opened.has(table)), "diagnose")
        result = api.analyse(opened, question)
    if question == "diagnose":
        text = first_findings_text(result, *output.page())
        target.deliver(text.encode())
    else:
        target.write(result)
    if question == "diagnose" and all(window.get("kind") == "capture" for window in result.window):
        target.deliver(_no_steps(opened.has("ranges"), shlex.join(profile)).encode())
    several = opened.has_timeline and opened.ranks.height > 1
    target.deliver(_more(question, several, shlex.join(profile)).encode())


def _no_steps(ranges: bool, words: str) -> str:
    """Why nothing is said of a step, and what finds or marks one."""
    from stepscope.render.layout import wrapped

    sentence = "Nothing marks a step in this trace, so that all figures are of the whole capture."
    listed = f" `stepscope nvtx {words}` lists its ranges: --anchor REGEX names the one that stands for a step."
    marked = " `stepscope capture run` marks steps by itself."
    return "\n".join(["", *wrapped(sentence + (listed if ranges else marked), output.page()[0]), ""])


def _more(question: str, several: bool, words: str) -> str:
    """What else one may ask, as commands to copy."""
    asked = {
        "diagnose": "every finding, with its evidence",
        "report": "all of it as a page, with pictures",
        "run": "where the whole capture went",
        "breakdown": "where the step went",
        "kernels": "which kernels take the time",
        "stragglers": "which rank makes the others wait",
        "serve": "the timeline, in a browser",
    }
    if not several:
        del asked["stragglers"]
    if question != "diagnose":
        asked = {"info": "what was recorded, and what is missing", "report": asked["report"]}
    where = {"report": " -o report.html"}
    commands = {f"stepscope {name} {words}{where.get(name, '')}": why for name, why in asked.items()}
    widest = max(map(len, commands))
    lines = [f"  {command.ljust(widest)}  {why}" for command, why in commands.items()]
    if widest > output.page()[0] // 2:
        lines = [f"  {command}\n      {why}" for command, why in commands.items()]
    return "\n".join(["", "Ask more:", *lines, "`stepscope --help` lists every question.", ""])


command = command_of(_look, "")
