"""What kernels are, by their names: communication or compute, family, tensor cores.

One data file that users can extend, applied to the (demangled) names, not to the rows.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.demangle import demangled
from stepscope.model.first_match import first_match
from stepscope.model.tomlfile import read_toml

#: Family of a kernel that no rule knows.
OTHER = "other"
COMMUNICATION = "communication"

#: A file of extra rules, for every command.
ENV = "STEPSCOPE_TAXONOMY"


@dataclass(frozen=True)
class Rule:
    """Names that match `pattern` belong to `label`."""

    pattern: str
    label: str


@dataclass(frozen=True)
class Taxonomy:
    """Rules in order: the first that matches a name decides."""

    comm: tuple[Rule, ...]
    families: tuple[Rule, ...] = ()
    tensor_cores: tuple[Rule, ...] = ()
    helpers: tuple[Rule, ...] = ()

    def library(self, names: pl.Series) -> pl.Series:
        """The communication library of each name; null for compute."""
        return _first_match(names, self.comm)

    def is_comm(self, names: pl.Series) -> pl.Series:
        return self.library(names).is_not_null()

    def is_helper(self, names: pl.Series) -> pl.Series:
        """Compute that goes with communication: layouts and copies of its library."""
        return _first_match(names, self.helpers).is_not_null() & ~self.is_comm(names)

    def family(self, names: pl.Series) -> pl.Series:
        """What sort of work each kernel does; communication by the rules above, `other` where no rule knows."""
        facts = pl.DataFrame({"comm": self.is_comm(names), "family": _first_match(names, self.families)})
        named = pl.when("comm").then(pl.lit(COMMUNICATION)).otherwise(pl.col("family").fill_null(OTHER))
        return facts.select(named.alias("family"))["family"]

    def tensor_core(self, names: pl.Series) -> pl.Series:
        """Whether the name says that the kernel runs on tensor (matrix) cores; null where it does not say."""
        first_match = _first_match(names, self.tensor_cores)
        return first_match.replace_strict({"yes": True, "no": False}, default=None, return_dtype=pl.Boolean)


def load(extra: Path | None = None) -> Taxonomy:
    """The built-in rules, after those of `extra` or of the file that the environment names."""
    chosen = extra or (Path(os.environ[ENV]) if os.environ.get(ENV) else None)
    builtin = _taxonomy(
        tomllib.loads(files("stepscope.model").joinpath("taxonomy.toml").read_text("utf-8")), "taxonomy.toml"
    )
    if chosen is None:
        return builtin
    own = _user_rules(chosen)
    return Taxonomy(
        own.comm + builtin.comm,
        own.families + builtin.families,
        own.tensor_cores + builtin.tensor_cores,
        own.helpers + builtin.helpers,
    )


def _user_rules(path: Path) -> Taxonomy:
    content, _ = read_toml(path, f"the taxonomy {path}", "see docs/model.md for the form of a taxonomy")
    own = _taxonomy(content, str(path))
    for rule in own.comm + own.families + own.tensor_cores + own.helpers:
        _check(rule.pattern, path)
    return own


def _check(pattern: str, where: Path) -> None:
    """Only for rules of users: compiling all the built-in ones would cost every command 20 ms."""
    try:
        pl.Series(["x"]).str.contains(pattern)
    except pl.exceptions.ComputeError:
        raise BadInput(
            f"{where}: {pattern!r} is not a valid regular expression", "Rust syntax, no look-around"
        ) from None


def _taxonomy(data: dict[str, Any], where: str) -> Taxonomy:
    return Taxonomy(
        _rules(data, where, "comm", "library", "custom"),
        _rules(data, where, "family", "name", None),
        _rules(data, where, "tensor_core", "uses", None, ("yes", "no")),
        _rules(data, where, "helper", "library", "custom"),
    )


def _rules(
    data: dict[str, Any], where: str, table: str, label: str, default: str | None, allowed: tuple[str, ...] = ()
) -> tuple[Rule, ...]:
    rules = []
    entries = data.get(table, [])
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not isinstance(entry.get("pattern"), str):
            raise BadInput(f"{where}: every [[{table}]] rule needs a `pattern`", "see docs/model.md")
        value = entry.get(label, default)
        if value is None or (allowed and value not in allowed):
            wanted = f"`{label}` = {' or '.join(map(repr, allowed))}" if allowed else f"a `{label}`"
            raise BadInput(f"{where}: every [[{table}]] rule needs {wanted}", "see docs/model.md")
        rules.append(Rule(entry["pattern"], str(value)))
    return tuple(rules)


def _first_match(names: pl.Series, rules: tuple[Rule, ...]) -> pl.Series:
    return first_match(demangled(names), ((rule.pattern, rule.label) for rule in rules)).cast(pl.String)


@cache
def default() -> Taxonomy:
    """The taxonomy without a user's file on the command line."""
    return load()
