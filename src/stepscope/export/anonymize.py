"""Names, paths and hosts as pseudonyms, and all figures as they are.

Names are read word by word. Words of the field stay (`vocabulary.txt`: what our own rules look for, and common words of
kernels and training code), and so do numbers and what stands between words: what a kernel is, what a range marks and
which communication it is can be told as before. Every other word becomes a pseudonym, the same wherever it appears.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from importlib.resources import files

import polars as pl

from stepscope.export.content import Content
from stepscope.model.demangle import demangled
from stepscope.model.exported import Header
from stepscope.model.note import noted
from stepscope.model.taxonomy import Taxonomy

#: Names that are public as a whole: ops of torch, functions of CUDA, HIP and NCCL, what profilers call things.
_PUBLIC = re.compile(
    r"(aten|prims|c10d|c10|torch)::[\w.]+|autograd::engine::evaluate_function: \w+Backward\d*|\w+Backward\d+"
    r"|_?(cuda|cu|hip|nccl|rccl)[A-Z]\w*|ProfilerStep#\d+|Optimizer\.\w+#\w+\.\w+|\[(memcpy|memset|graph)[^\]]*\]"
    r"|\s*rank=[0-9]+\s*;[\w\s=/;.,-]*"
)
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[^\W\d_a-zA-Z]+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORT = 2
#: Columns that repeat a name in another form, or hold values of the user's.
_DROPPED = {"ops": ("mangled_name",), "host": ("inputs",), "calls": ("thread_name",)}


@dataclass(frozen=True)
class Pseudonyms:
    """Pseudonyms of words: the same in every export, so that two of them can be compared."""

    rules: Taxonomy

    @cached_property
    def _known(self) -> frozenset[str]:
        words = files("stepscope.export").joinpath("vocabulary.txt").read_text("utf-8").split()
        rules = (*self.rules.comm, *self.rules.families, *self.rules.tensor_cores, *self.rules.helpers)
        public = {word.lower() for rule in rules for word in _WORD.findall(re.sub(r"\\[A-Za-z]", " ", rule.pattern))}
        return frozenset(words) | public

    def of(self, text: str) -> str:
        return text if _PUBLIC.fullmatch(text) else _WORD.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        word = match[0]
        return word if len(word) <= _SHORT or word.lower() in self._known else pseudonym(word.lower())

    def names(self, names: pl.Series) -> tuple[pl.Series, int]:
        """The names as pseudonyms; one whose kind would change with it stays, and is counted."""
        plain = demangled(names)
        changed = pl.Series("name", [self.of(text) for text in plain.to_list()], dtype=pl.String)
        stays = pl.Series([False] * len(names), dtype=pl.Boolean)
        for judge in (self.rules.family, self.rules.library, self.rules.is_helper, self.rules.tensor_core):
            stays |= judge(plain).ne_missing(judge(changed))
        kept = pl.DataFrame({"plain": plain, "changed": changed, "stays": stays})
        return kept.select(pl.when("stays").then("plain").otherwise("changed").alias("name")).to_series(), int(
            stays.sum()
        )


def pseudonym(word: str) -> str:
    """Six letters: a word that means nothing, and that no rule looks for."""
    number = int.from_bytes(blake2b(word.encode(), digest_size=8, person=b"stepscope").digest())
    letters = []
    for _ in range(5):
        number, rest = divmod(number, 26)
        letters.append(_LETTERS[rest])
    return "x" + "".join(letters)


def anonymized(content: Content, rules: Taxonomy) -> Content:
    """The same content under pseudonyms."""
    words = Pseudonyms(rules)
    names, kept = words.names(content.names)
    tables = {
        table: frame.with_columns(pl.lit(None, frame[c].dtype).alias(c) for c in _DROPPED.get(table, ()) if c in frame)
        for table, frame in content.tables.items()
    }
    hosts = {h: f"host-{pseudonym(h)}" for h in content.ranks["host"].drop_nulls().unique().to_list()}
    ranks = content.ranks.with_columns(
        pl.col("host").replace(hosts), pl.col("setup").map_elements(words.of, return_dtype=pl.String)
    )
    notes = _notes(content.header)
    if kept:
        notes.append(noted("names-kept", number=kept).data())
    processes = [
        {**row, "host": hosts.get(row["host"]), "setup": words.of(row["setup"]) if row["setup"] else None}
        for row in content.header.processes
    ]
    info = {**content.header.info, "files": [], "facts": {}}
    return replace(
        content,
        ranks=ranks,
        tables=tables,
        names=names,
        header=replace(content.header, processes=processes, info=info, notes=notes),
    )


def _notes(header: Header) -> list[dict[str, object]]:
    """What was lost stays known, by its code: texts may name files."""
    left_out = "(what it said is left out of an anonymized export)"
    lost = [note for note in header.notes if note["severity"] == "loss"]
    return [{**note, "text": f"{note['code']} {left_out}"} for note in lost]
