"""Mutants of what is JSON: Kineto traces, logs of JSON lines, manifests, baselines, headers of exports."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from effects import Defect, together
from mutate_bytes import damage
from mutate_values import FIELDS, encode, shown, some

#: Events whose times decide figures, by category.
_TIMED = ("kernel", "cuda_runtime", "gpu_memcpy")
#: As a time, nothing that could be one.
_NO_TIMES = (None, "", "text", [], [1], {}, True, False)


class TraceText:
    """A Kineto trace as texts of its events, so that a mutant encodes only what it changes."""

    def __init__(self, path: Path) -> None:
        content = json.loads(path.read_text("utf-8", "replace"), strict=False)
        content = content if isinstance(content, dict) else {"traceEvents": content}
        events = content.pop("traceEvents")
        self.header: str = json.dumps(content)
        self.events: list[str] = [json.dumps(e) for e in events]
        self.kinds: dict[str, list[int]] = {}
        for at, event in enumerate(events):
            kind = str(event.get("cat")) if isinstance(event, dict) else "None"
            self.kinds.setdefault(kind, []).append(at)


def mutate_kineto(r: random.Random, base: TraceText, path: Path) -> Defect:
    """A copy at `path` with defects."""
    events, header = list(base.events), json.loads(base.header)
    how = r.random()
    if how < 0.12:
        events, defect = _irrelevant(r, events, header)
    elif how < 0.17:
        defect = "cut", "told"
    else:
        defect = together(_event_defect(r, base, events, header) for _ in range(r.choice((1, 1, 2, 3))))
    text = encode(header)[:-1] + ("," if header else "") + '"traceEvents":[' + ",\n".join(events) + "]}"
    data = text.encode("utf-8", errors="surrogatepass")
    if 0.12 <= how < 0.17:  # before the bracket that closes the list: behind it, nothing is missing
        data = data[: r.randrange(20, len(data) - 2)]
    path.write_bytes(data)
    return together([defect, damage(r, path)]) if 0.17 <= how < 0.29 else defect


def _irrelevant(r: random.Random, events: list[str], header: dict[str, Any]) -> tuple[list[str], Defect]:
    """What no reader looks at."""
    how = r.randrange(4)
    if how == 0:
        header["ofAnotherTool"] = r.choice((None, "text", 5, -1.5, [1, [2]], {"a": {"b": []}}))
        return events, ("another key", "same")
    if how == 1:
        other = {"ph": "X", "cat": "of_another_tool", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
        return [*events, json.dumps({**other, "ph": "q"})], ("an event of another phase", "same")
    if how == 2:
        return [json.dumps(json.loads(e), indent=r.choice((1, 4))) for e in events], ("other white space", "same")
    return [json.dumps(json.loads(e), sort_keys=True) for e in events], ("fields in another order", "same")


def _event_defect(r: random.Random, base: TraceText, events: list[str], header: dict[str, Any]) -> Defect:
    if r.random() < 0.15 and header:
        return nested_defect(r, header), "free"
    kind = r.choice(sorted(base.kinds))
    places = [base.kinds[kind][i] for i in some(r, len(base.kinds[kind]))]
    value, how = r.choice(FIELDS), r.random()
    if how < 0.05:
        for at in places:
            events[at] = encode(value)
        return f"{len(places)} {kind} events are {shown(value)}", "free"
    if how < 0.12:
        events += [events[at] for at in places]
        return f"{len(places)} {kind} events twice", "told" if kind in _TIMED else "free"
    changed = [_decoded(events[at]) for at in places]
    targets = [e["args"] for e in changed if isinstance(e.get("args"), dict)] if r.random() < 0.4 else changed
    key = r.choice(sorted({k for t in targets for k in t}) or ["ts"])
    said, gone = _set(r, targets, key, value)
    for at, event in zip(places, changed, strict=True):
        events[at] = encode(event)
    no_time = gone or any(value is v or value == v for v in _NO_TIMES)
    timed = kind in _TIMED and key in ("ts", "dur") and targets is changed and no_time
    return f"{kind} {said}", "told" if timed else "free"


def _decoded(text: str) -> dict[str, Any]:
    try:
        event = {} if "[[[[" in text else json.loads(text)
    except ValueError:  # a value that no encoder writes, put there by the defect before; as is one that is too deep
        return {}
    return event if isinstance(event, dict) else {}


def mutate_lines(r: random.Random, path: Path) -> Defect:
    """A log of JSON lines."""
    if r.random() < 0.15:
        return damage(r, path)
    lines: list[Any] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    said = []
    for _ in range(r.choice((1, 1, 2, 3))):
        places, value = some(r, len(lines)), r.choice(FIELDS)
        how = r.random()
        if how < 0.1:
            lines[places[0]] = value
            said.append(f"line {places[0] + 1} is {shown(value)}")
        elif how < 0.2:
            lines += [lines[at] for at in places]
            said.append(f"{len(places)} lines twice")
        elif how < 0.25:
            r.shuffle(lines)
            said.append("lines in another order")
        else:
            keys = sorted({k for at in places if isinstance(lines[at], dict) for k in lines[at]})
            said.append(_set(r, [lines[at] for at in places], r.choice(keys or ["k"]), value)[0])
    path.write_text("".join(encode(line) + "\n" for line in lines), "utf-8", errors="surrogatepass")
    return "; ".join(said), "free"


def mutate_json(r: random.Random, path: Path) -> Defect:
    """A file that holds one JSON value: a manifest, a baseline, an export."""
    if r.random() < 0.15:
        return damage(r, path)
    content = json.loads(path.read_text("utf-8"))
    said = [nested_defect(r, content) for _ in range(r.choice((1, 1, 2, 3)))]
    path.write_text(encode(content), "utf-8", errors="surrogatepass")
    return "; ".join(said), "free"


def _set(r: random.Random, targets: list[Any], key: str, value: Any) -> tuple[str, bool]:
    """The field set, gone, or renamed in all targets; and whether it is gone."""
    how = r.random()
    for target in targets:
        if not isinstance(target, dict):
            continue
        if how < 0.7:
            target[key] = value
        elif key in target:
            held = target.pop(key)
            if how < 0.78:
                target[f"{key}_2"] = held
    what = f"= {shown(value)}" if how < 0.7 else "renamed" if 0.7 <= how < 0.78 else "gone"
    return f"{key} {what} in {len(targets)}", how >= 0.7


def nested_defect(r: random.Random, content: Any, values: Sequence[Any] = FIELDS) -> str:
    """Somewhere in a nest of objects and lists."""
    at, inside = "", content
    while isinstance(inside, dict | list) and inside:
        key: Any = r.choice(sorted(inside, key=str)) if isinstance(inside, dict) else r.randrange(len(inside))
        at += f".{key}"
        deeper = inside[key]
        if not isinstance(deeper, dict | list) or not deeper or r.random() < 0.25:
            value, how = r.choice(values), r.random()
            if how < 0.7:
                inside[key] = value
                return f"{at} = {shown(value)}"
            if how < 0.78 and isinstance(inside, list):
                inside.append(deeper)
                return f"{at} twice"
            if how < 0.85 and isinstance(inside, dict):
                inside[f"{key}_2"] = inside.pop(key)
                return f"{at} renamed"
            del inside[key]
            return f"{at} gone"
        inside = deeper
    return "nothing"
