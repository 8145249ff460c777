"""What the timeline's marks are, as the page gets them: kinds with their colours.

The page has no table of its own: it draws what it is sent, in the colours that its style sheet has under these names.
"""

from __future__ import annotations

from stepscope.timeline.messages import Kind

#: Ops by role, ranges, calls, and what else the host ran, in the colours of those names.
MARKS = ("compute", "comm", "copy", "range", "call", "torch", "python")
#: Parts of a rank's time: colour, and what the page calls them.
PARTS = {
    "compute": ("compute", "compute"),
    "comm_exposed": ("comm", "exposed communication"),
    "copy_exposed": ("copy", "exposed copies"),
    "idle": ("idle", "idle"),
}
#: Kinds of marks, as the page gets them: `part` names a part of a rank's time; other marks have names of their own,
#: and the last is a counter's.
KINDS: list[Kind] = [
    *(Kind(colour=colour, part=None) for colour in MARKS),
    *(Kind(colour=colour, part=name) for colour, name in PARTS.values()),
    Kind(colour="hidden", part=None),
]
#: The kind of a counter's marks, and how its largest value is sent.
COUNTER, FULL = len(KINDS) - 1, 65_535
