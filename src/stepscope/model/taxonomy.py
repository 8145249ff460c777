"""Which kernels are communication: one data file that users can extend, applied to the names, not to the rows."""

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

    def library(self, names: pl.Series) -> pl.Series:
        """The communication library of each name; null for compute."""
        return _first_match(names, self.comm)

    def is_comm(self, names: pl.Series) -> pl.Series:
        return self.library(names).is_not_null()


def load(extra: Path | None = None) -> Taxonomy:
    """The built-in rules, after those of `extra` or of the file that the environment names."""
    chosen = extra or (Path(os.environ[ENV]) if os.environ.get(ENV) else None)
    builtin = _rules(
        tomllib.loads(files("stepscope.model").joinpath("taxonomy.toml").read_text("utf-8")), "taxonomy.toml"
    )
    if chosen is None:
        return Taxonomy(builtin)
    return Taxonomy(_user_rules(chosen) + builtin)


def _user_rules(path: Path) -> tuple[Rule, ...]:
    try:
        return _rules(tomllib.loads(path.read_text("utf-8")), str(path))
    except OSError as error:
        raise BadInput(f"{path}: cannot read the taxonomy ({error.strerror})", "give an existing TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not valid TOML ({error})", "see docs/model.md for the form of a taxonomy") from None


def _rules(data: dict[str, Any], where: str) -> tuple[Rule, ...]:
    rules = []
    for entry in data.get("comm", []):
        if not isinstance(entry, dict) or not isinstance(entry.get("pattern"), str):
            raise BadInput(f"{where}: every [[comm]] rule needs a `pattern`", "see docs/model.md")
        pattern = entry["pattern"]
        try:
            pl.Series(["x"]).str.contains(pattern)
        except pl.exceptions.ComputeError:
            raise BadInput(
                f"{where}: {pattern!r} is not a valid regular expression", "Rust syntax, no look-around"
            ) from None
        rules.append(Rule(pattern, str(entry.get("library", "custom"))))
    return tuple(rules)


def _first_match(names: pl.Series, rules: tuple[Rule, ...]) -> pl.Series:
    label = pl.lit(None, dtype=pl.String)
    for rule in reversed(rules):
        label = pl.when(pl.col("name").str.contains(rule.pattern)).then(pl.lit(rule.label)).otherwise(label)
    return pl.DataFrame({"name": names}).select(label.alias("library"))["library"]


@cache
def default() -> Taxonomy:
    """The taxonomy without a user's file on the command line."""
    return load()
