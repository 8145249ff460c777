"""Notes on our reading of files: what was left out, mended or inferred.

What stands in braces is filled in by whoever notes it. Another text under the same code has a name after `/`.
"""

#: Context, or what was inferred.
INFO: dict[str, str] = {
    "names-kept": "kept {number} names: renaming them would change how they are classified",
    "pages-not-checked": "{name} {how}",
    "ranks-inferred": "rank inferred from the {source} for {without} of {all} processes{apart}",
    "several-gpus": (
        "one process computes on {number} GPUs: each counts as a rank of its own, with the host's activity of the "
        "process"
    ),
    "two-captures": "{both} recorded this job: figures come from {first}, unless a note says otherwise",
    "unknown-category": "{number} events of the unknown category {category!r} left out",
    "unknown-category/action": "{number} events of the unknown action {action!r}: left out",
}
#: Figures mean less than they seem to.
WARNING: dict[str, str] = {
    "json-mended": "the JSON has flaws (NaN, raw control characters or the like) that were mended",
    "label-not-an-axis": "the setup label {rank} says {pair}: ignored, since it is not a valid mesh axis",
    "late-or-missing": (
        "not all ranks of the job are in the profile: the rank that comes last here may itself be waiting for a "
        "missing one, and is then not to blame"
    ),
    "launch-too-late": "{number} GPU ops start before the call that launched them: their launch is treated as unknown",
    "ranks-missing": "{number} of the job's {world} ranks are not in the profile ({some})",
    "ranks-missing/by-labels": (
        "the setup labels describe {labelled} ranks, the profile has {here} (axes may also overlap)"
    ),
    "values-assumed": "{table}: {count} without {column}: treated as {taken}",
}
#: Records are missing.
LOSS: dict[str, str] = {
    "dump-refused": "left out: {why}",
    "file-cut-short": "{number} of {records} kernels are empty: the report is cut off, or damaged",
    "file-cut-short/events": "the list of events is not closed: events may be missing at its end",
    "file-cut-short/last-line": "the last line ({why}) is cut off: left out",
    "file-cut-short/lines": "{number} lines are cut off, or not JSON: left out",
    "file-damaged": "{name} is damaged ({damage}): rows are lost or wrong; copy or export it again",
    "rows-impossible": "{name}: left out {count} {why}{example}",
    "rows-impossible/kineto": "{what} left out",
    "rows-left-out": "{what}: left out {number} row{more} {why}",
    "rows-left-out/backwards": "{number} intervals end before they start: left out",
    "rows-left-out/half": "{number} intervals have only one of their two times: left out",
    "rows-left-out/items": "{number} items of its lists are of an unknown kind: left out",
    "rows-left-out/no-rank": "{number} {name} belong to no known rank of this merged file: left out",
    "rows-left-out/open": "{lone} annotations lack their start or end: left out",
    "units-missing": (
        "{number} metrics without the unit that ncu scales them by, such as {example}: treated as unknown ({again})"
    ),
    "unmerged-log": "{name} holds changes that were never merged into the file: not read",
    "values-unknown": "{table}: {lost} value{s} of {name} too large: treated as unknown",
    "values-unknown/column": "{table}.{column}: {count} value{more} not of its type: treated as unknown",
    "values-unknown/counts": "{counts} more than the GPU can do in the kernel's time: treated as unknown",
    "values-unknown/value": "{table}: {count} value{s} of {column} cannot be ({example}): treated as unknown",
}
