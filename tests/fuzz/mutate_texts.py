"""Mutants of what is JSON: Kineto traces, logs of JSON lines, manifests."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

from mutate_values import FIELDS, encode, shown, some


def mutate_kineto(r: random.Random, bases: list[Path], folder: Path) -> tuple[list[Path], str]:
    """Copies of all ranks' files, one of them with defects."""
    paths = [Path(shutil.copy(base, folder / base.name)) for base in bases]
    path = r.choice(paths)
    if r.random() < 0.1:
        return paths, f"{path.name}: {_damage(r, path)}"
    content = json.loads(path.read_text("utf-8", "replace"), strict=False)
    if isinstance(content, list):
        content = {"traceEvents": content}
    said = [_event_defect(r, content) for _ in range(r.choice((1, 1, 2, 3)))]
    path.write_text(encode(content), "utf-8", errors="surrogatepass")
    return paths, f"{path.name}: {'; '.join(said)}"


def mutate_lines(r: random.Random, base: Path, folder: Path) -> tuple[Path, str]:
    path = Path(shutil.copy(base, folder / base.name))
    if r.random() < 0.1:
        return path, _damage(r, path)
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
        else:
            keys = sorted({k for at in places if isinstance(lines[at], dict) for k in lines[at]})
            key = r.choice(keys or ["k"])
            said.append(_set(r, [lines[at] for at in places], key, value))
    path.write_text("".join(encode(line) + "\n" for line in lines), "utf-8", errors="surrogatepass")
    return path, "; ".join(said)


def mutate_manifest(r: random.Random, base: Path, folder: Path) -> tuple[Path, str]:
    """A copy of a capture's folder whose manifest.json is mutated."""
    path = folder / "capture"
    shutil.copytree(base, path)
    file = path / "manifest.json"
    if r.random() < 0.1:
        return path, _damage(r, file)
    content = json.loads(file.read_text("utf-8"))
    said = [nested_defect(r, content) for _ in range(r.choice((1, 1, 2, 3)))]
    file.write_text(encode(content), "utf-8", errors="surrogatepass")
    return path, "; ".join(said)


def _event_defect(r: random.Random, content: dict[str, Any]) -> str:
    events = content.get("traceEvents")
    if not isinstance(events, list) or not events or r.random() < 0.15:
        return nested_defect(r, content)
    chosen = [e for e in events if isinstance(e, dict)]
    kinds = sorted({str(e.get("cat")) for e in chosen})
    kind = r.choice(kinds or ["None"])
    of_kind = [at for at, e in enumerate(events) if isinstance(e, dict) and str(e.get("cat")) == kind]
    places = [of_kind[i] for i in some(r, len(of_kind))]
    value, how = r.choice(FIELDS), r.random()
    if how < 0.05:
        for at in places:
            events[at] = value
        return f"{len(places)} {kind} events are {shown(value)}"
    if how < 0.12:
        events += [events[at] for at in places]
        return f"{len(places)} {kind} events twice"
    targets = [events[at] for at in places]
    if r.random() < 0.4:
        targets = [e["args"] for e in targets if isinstance(e.get("args"), dict)]
    keys = sorted({k for t in targets for k in t})
    return f"{kind} " + _set(r, targets, r.choice(keys or ["ts"]), value)


def _set(r: random.Random, targets: list[Any], key: str, value: Any) -> str:
    """The field set, gone, or renamed in all targets."""
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
    return f"{key} {what} in {len(targets)}"


def nested_defect(r: random.Random, content: Any) -> str:
    """Somewhere in a nest of objects and lists."""
    at, inside = "", content
    while isinstance(inside, dict | list) and inside:
        key: Any = r.choice(sorted(inside)) if isinstance(inside, dict) else r.randrange(len(inside))
        at += f".{key}"
        deeper = inside[key]
        if not isinstance(deeper, dict | list) or not deeper or r.random() < 0.25:
            value, how = r.choice(FIELDS), r.random()
            if how < 0.75:
                inside[key] = value
                return f"{at} = {shown(value)}"
            del inside[key]
            return f"{at} gone"
        inside = deeper
    return "nothing"


def _damage(r: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    for _ in range(r.choice((1, 4, 40))):
        data[r.randrange(len(data))] = r.randrange(256)
    size = r.choice((len(data), len(data), r.randrange(len(data))))
    path.write_bytes(data[:size])
    return f"bytes damaged, {size} of {len(data)} left"
