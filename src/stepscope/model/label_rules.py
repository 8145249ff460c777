"""What a trainer calls its ranges: steps, chunks, stages, what communication serves, micro-batches.

The rules are data (`trainers/*.toml`; docs/labels.md): those that always hold, and a preset per trainer. A file of a
user (`--labels FILE`) has the same form. What it says comes first; where it is silent, the rules before it hold.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.tomlfile import read_toml

_OWN = Path(__file__).parent / "trainers"
#: The rules that hold for every trainer, and the trainer whose labels need no asking for.
_DEFAULT, _KNOWN = "default", "pithtrain"
#: What communication can serve.
PURPOSES = ("cp_ring", "dp", "ep_a2a", "ep_meta", "pp_p2p", "tp")
_HINT = "docs/labels.md has the keys"


@dataclass(frozen=True)
class Steps:
    """How steps are recognized where `step` says nothing: see `derive/windows/steps.py`."""

    numbered: str
    unnumbered: str
    never: str
    serving: str
    optimizer: str
    part: str


@dataclass(frozen=True)
class Purpose:
    """What communication serves that was launched in a range, or in a stage, of this name."""

    purpose: str
    range: str | None = None
    stage: str | None = None
    #: only where the rank's setup label has more than one coordinate on this axis
    axis: str | None = None
    #: what stages are called in the file that the rule is of: another file may call them otherwise
    stages: str = ""


@dataclass(frozen=True)
class LabelRules:
    """The rules of a trainer. Patterns are regular expressions without look-around."""

    #: as the user named them: a preset or a file; None for those that hold without asking
    name: str | None = None
    #: the window of every question, unless the user chooses another: `--anchor`
    anchor: str | None = None
    #: ranges that mark steps, before those that are recognized
    step: str | None = None
    chunk: str = r"$.^"
    first_pass: str = r"$.^"
    stage: str = r"$.^"
    steps: Steps | None = None
    purposes: tuple[Purpose, ...] = ()
    micro_batches: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells these rules from others: `default`, or the name with a hash of what they say."""
        if replace(self, name=None) == default():
            return _DEFAULT
        digest = hashlib.sha256(repr(replace(self, name=None)).encode()).hexdigest()[:8]
        return f"{Path(self.name or 'own').name} ({digest})"

    @property
    def any_micro_batch(self) -> str:
        """For filters over many texts: all patterns of micro-batches as one."""
        return "|".join(f"(?:{re.sub(r'[(][?]P<[^>]+>', '(?:', pattern)})" for pattern in self.micro_batches)

    @property
    def recognized(self) -> Steps:
        assert self.steps is not None, "the rules of every trainer have it"
        return self.steps


def names() -> list[str]:
    """The presets."""
    return sorted(f.stem for f in _OWN.glob("*.toml") if f.stem != _DEFAULT)


def load(given: str | Path | None) -> LabelRules:
    """The rules of a preset or of a file; without one, those that hold for every trainer."""
    if given is None:
        return default()
    if str(given) in names():
        return replace(default() if given == _KNOWN else _read(_OWN / f"{given}.toml", default()), name=str(given))
    path = Path(given)
    if not path.exists() and path.suffix != ".toml":
        raise BadInput(f"--labels {given}: no such preset or file", f"presets are {', '.join(names())}")
    return replace(_read(path, default()), name=str(given))


@cache
def default() -> LabelRules:
    """The rules that hold without asking."""
    return _read(_OWN / f"{_KNOWN}.toml", _read(_OWN / f"{_DEFAULT}.toml", LabelRules()))


def _read(path: Path, before: LabelRules) -> LabelRules:
    data, text = read_toml(path, f"--labels {path}", _HINT)
    return _File(path, text, path.parent != _OWN).rules(data, before)


@dataclass(frozen=True)
class _File:
    """A file of rules: what is wrong with it is said with its key and line."""

    path: Path
    text: str
    #: built-in patterns are good: compiling them would cost every command time
    checked: bool

    def rules(self, data: dict[str, Any], before: LabelRules) -> LabelRules:
        if "extends" in data:
            preset = self._text(data.pop("extends"), "extends")
            if preset not in names():
                raise self._wrong("extends", f"no preset {preset!r}", f"presets are {', '.join(names())}")
            before = load(preset)
        rules: dict[str, Any] = {}
        for key, value in data.items():
            if key in ("anchor", "step", "chunk", "first_pass", "stage"):
                rules[key] = self._pattern(value, key)
            elif key == "steps":
                rules[key] = self._steps(value, before.steps)
            elif key == "purpose":
                stages = data.get("stage", before.stage)
                own = [self._purpose(entry, k, stages) for k, entry in enumerate(self._tables(value, key))]
                rules["purposes"] = (*own, *before.purposes)
            elif key == "micro_batch":
                kinds = [self._micro_batch(entry, k) for k, entry in enumerate(self._tables(value, key))]
                rules["micro_batches"] = (*kinds, *before.micro_batches)
            else:
                allowed = "anchor, step, chunk, first_pass, stage, steps, purpose, micro_batch, extends"
                raise self._wrong(key, "not a key", f"the keys are {allowed}")
        return replace(before, **rules)

    def _steps(self, table: Any, before: Steps | None) -> Steps:
        if not isinstance(table, dict):
            raise self._wrong("steps", "not a table", "write [steps], and its keys below it")
        allowed = [f.name for f in fields(Steps)]
        if unknown := [k for k in table if k not in allowed]:
            raise self._wrong(unknown[0], "not a key of [steps]", f"its keys are {', '.join(allowed)}")
        patterns = {key: self._pattern(value, key) for key, value in table.items()}
        return Steps(**patterns) if before is None else replace(before, **patterns)

    def _purpose(self, entry: dict[str, Any], nth: int, stages: str) -> Purpose:
        where = ("purpose", nth)
        if unknown := [k for k in entry if k not in ("range", "stage", "axis", "purpose")]:
            raise self._wrong(unknown[0], "not a key of [[purpose]]", "its keys are range, stage, axis, purpose", where)
        if ("range" in entry) == ("stage" in entry):
            raise self._wrong("purpose", "a rule needs either `range` or `stage`", _HINT, where)
        if entry.get("purpose") not in PURPOSES:
            wrong = f"{entry.get('purpose')!r} is nothing that communication serves"
            raise self._wrong("purpose", wrong, f"give one of {', '.join(PURPOSES)}", where)
        patterns = {k: self._pattern(entry[k], k, where) for k in ("range", "stage") if k in entry}
        return Purpose(entry["purpose"], **patterns, axis=entry.get("axis"), stages=stages if "stage" in entry else "")

    def _micro_batch(self, entry: dict[str, Any], nth: int) -> str:
        where = ("micro_batch", nth)
        if list(entry) != ["pattern"]:
            raise self._wrong("micro_batch", "a rule has one key, `pattern`", _HINT, where)
        pattern = self._pattern(entry["pattern"], "pattern", where)
        groups = set(re.compile(pattern).groupindex)
        if "kind" not in groups or groups - {"kind", "mb", "part"}:
            raise self._wrong(
                "pattern", "needs the group (?P<kind>…), and may have (?P<mb>…), (?P<part>…)", _HINT, where
            )
        return pattern

    def _tables(self, value: Any, key: str) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self._wrong(key, "not a list of rules", f"write [[{key}]] before each")
        return value

    def _text(self, value: Any, key: str, where: tuple[str, int] | None = None) -> str:
        if not isinstance(value, str) or not value:
            raise self._wrong(key, f"{value!r} is not a text", f"write {key} = '…'", where)
        return value

    def _pattern(self, value: Any, key: str, where: tuple[str, int] | None = None) -> str:
        """A pattern that both Python and Polars can read."""
        pattern = self._text(value, key, where)
        if self.checked:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", FutureWarning)  # of what Python reads otherwise than Polars
                    re.compile(pattern)
                pl.Series(["x"]).str.contains(pattern)
            except (re.error, OverflowError, RecursionError, FutureWarning, pl.exceptions.ComputeError) as error:
                of_polars = isinstance(error, pl.exceptions.ComputeError)
                why = "no look-around, no backreferences" if of_polars else str(error).splitlines()[0]
                raise self._wrong(key, f"{pattern!r} is not a regular expression ({why})", "mend it", where) from None
        return pattern

    def _wrong(self, key: str, what: str, hint: str, where: tuple[str, int] | None = None) -> BadInput:
        return BadInput(f"--labels {self.path}: {key}, line {self._line(key, where)}: {what}", hint)

    def _line(self, key: str, where: tuple[str, int] | None) -> int:
        """The line of a key, of the n-th rule of a list where that is given."""
        lines = self.text.splitlines()
        first = 0
        if where is not None:
            heads = [i for i, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{where[0]}\s*\]\]", line)]
            first = heads[where[1]] if where[1] < len(heads) else 0
        for pattern in (rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", rf"\s*\[+\s*{re.escape(key)}\b"):
            if found := [i for i in range(first, len(lines)) if re.match(pattern, lines[i])]:
                return found[0] + 1
        return first + 1
