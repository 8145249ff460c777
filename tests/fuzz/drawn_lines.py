"""Command lines of every command, with options drawn from what click knows of them.

All commands are asked but those of `NOT_ASKED`; every option is drawn but those of `NOT_DRAWN`. What a line writes goes
into the folder of its round.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from drawn_options import NUMBERS, PATTERNS, SHARES, times

from stepscope.cli.main import cli
from stepscope.nsys.recipes.registry import recipes
from stepscope.nsys.reports.registry import all_rules, reports

#: Servers wait for requests, the tour takes no input: `tests/soaked.py`, `tests/cli/test_simulate_demo.py` have them.
NOT_ASKED = {"serve", "mcp", "demo"}
#: Of these commands, so often as of one question.
_RARE = {"simulate": 0.3, "capture": 0.3, "skill": 0.2, "hang": 0.5}
#: Options that would start what a user names, or ask a person: `@COMMAND` of `--output` is not drawn either.
NOT_DRAWN = {"help", "yes"}
#: Options that start processes, each of which imports everything: seldom.
_DEAR = {"jobs": 0.02, "cluster": 0.05}
#: Any other option.
_OFTEN = 0.08
#: Files of options, as somebody would write them.
FILES = Path(__file__).resolve().parent / "option_files"
_QUERIES = (
    "SELECT count(*) FROM ops",
    "SELECT * FROM windows LIMIT 5",
    "SELECT kind, sum(dur_ns) FROM ops GROUP BY ALL",
    "SELECT * FROM exposures ORDER BY ALL LIMIT 3",
    "SELECT * FROM meetings",
    "SELECT *, enclosing_range(rank, tid, start_ns) FROM calls LIMIT 3",
    "SELECT histogram(dur_ns) FROM ops",
    "SELECT * FROM tables",
    "SELECT * FROM columns",
    "DELETE FROM ops",
    "SELECT nothing FROM nowhere",
)
_SIZES = ("1GiB", "300MB", "4GB", "1", "much")
_TIMES = ("0", "1ms", "10us", "2s", "@0", "later")
#: Values of options by name: what somebody might write, right and wrong.
_VALUES: dict[str, tuple[str, ...]] = {
    "index": ("all", "median", "0", "1", "-1", "1000", "first"),
    "rank": ("0", "0-1", "4095", "1,0", "x"),
    "sort": ("rank", "dur_ns:asc", "rank,dur_ns:desc", "no_such"),
    "memory": _SIZES,
    "timeout": ("1s", "2500ms", "0", "-1", "soon"),
    "max_size": _SIZES,
    "labels": ("megatron", "torchtitan", "pithtrain", "{files}/labels.toml", "nobody"),
    "taxonomy": ("{files}/taxonomy.toml", "{folder}/none.toml"),
    "model": ("qwen3-30b-a3b", "layers=6,width=1024", "{folder}/none.toml", "nobody"),
    "limits": ("{files}/limits.toml", "{folder}/none.toml"),
    "limit": ("step=2", "comm_exposed=1", "family:gemm=0.5", "step", "nothing=1"),
    "baseline": ("saved", "{folder}/saved.json", "none"),
    "save": ("saved", "{folder}/saved.json"),
    "cluster": ("tcp://127.0.0.1:9", "nowhere"),
    "nsys": ("{folder}/nsys", "nsys"),
    "ncu": ("{folder}/ncu", "ncu"),
    "gpu": ("H100", "MI300X", "abacus"),
    "gap": ("1", "800us", "0", "-1"),
    "gate": ("breaks<=0", "recompiles<=2,compiled>=80", "x"),
    "what_if": ("hide-comm", "hide-comm=stage4_f", "even-rank", "even-rank=0", "even-rank=99", "host=2", "host=0", "x"),
    "fail_on": ("5%", "exposed-communication", "100%", "nothing"),
    "only": ("exposed-communication", "idle", ".*", "nothing"),
    "filter_time": ("0/1s", "1ms/", "/5ms", "5ms/1ms", "x/y"),
    "filter_nvtx": ("step", "step/0", "step@NCCL", "nothing/7", "/"),
    "timeunit": ("nsec", "usec", "msec", "seconds", "weeks"),
    "formats": ("column", "table", "csv", "tsv", "json", "md", "csv:dec=1", "x"),
    "outputs": ("-", "{made}", "{made},-"),
    "help_wanted": ("ALL", "cuda_gpu_kern_sum", "nothing"),
    "force_export": ("true", "false", "x"),
    "force_overwrite": ("true", "false", "x"),
    "start": _TIMES,
    "end": _TIMES,
    "mode": ("none", "concurrent", "dask-futures"),
    "table": ("all", "stats", "rank_stats", "nothing"),
    "schedule": ("1f1b", "gpipe", "ddp", "fsdp", "interleaved", "zero-bubble", "dualpipev", "x"),
    "fault": ("straggler:rank=0,ms=5", "straggler", "x:y=z"),
    "hang": ("mismatch", "x:rank=0"),
    "write": ("nsys", "kineto", "nsys,kineto", "x"),
    "trigger": ("cuda", "nvtx", "nvtx=step", "time=1s+2s", "none", "x"),
    "wants": ("shapes", "stacks,memory", "x"),
    "tags": ("key=value", "key"),
    "ranges": ("phases", "modules", "modules=2", "none", "x"),
    "for_gate": ("2", "0", "x"),
    "grace": _TIMES,
    "need_time": _TIMES,
    "nsys_args": ("--stats=false", ""),
    "torch_args": ("shapes", "x"),
    "trace": ("cuda,nvtx", "x"),
    "set": ("basic", "x"),
    "beside": ("{profile}",),
    "to": ("{profile}",),
    "input": ("{profile}",),
    "inputs": ("{profile}", "{folder}"),
    "against": ("{profile}", "{folder}", "{folder}/none"),
    "profiles": ("{profile}",),
    "timeline": ("{profile}", "{folder}/none"),
    "log": ("{profile}", "{folder}/none.log"),
}  # fmt: skip
#: Options that name a file to write.
_WRITTEN = ("output", "output_file", "flame", "stacks", "markdown", "junit")
_ENDINGS = {
    "report": (".html", ".md", ".txt"),
    "hang": (".html", ".md", ""),
    "export": (".json", ".pftrace", ".parquet", ".json.gz", ".txt"),
}
#: So small that a job is made in less than a second.
_SMALL = {"steps": "2", "layers": "2", "micro_batches": "2", "kernels": "4", "seq": "128", "nodes": "1", "scale": "1"}
#: Without these the command would start a program, or look for one.
_FORCED = {"capture run": ("--dry-run",), "capture ncu": ("--dry-run",), "capture hang": ("--env",)}


@dataclass(frozen=True)
class Place:
    """The profile that a line is about, and where its files may lie."""

    profile: Any
    paths: tuple[Path, ...]
    folder: Path


@cache
def commands() -> dict[str, click.Command]:
    """Every command that is asked, by the words that call it."""
    return dict(_leaves(cli, ""))


def _leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{path}{name} ")
        elif command is not None and path + name not in NOT_ASKED:
            yield path + name, command


def every_pair() -> set[str]:
    """Each command with each of its options that are drawn."""
    return {f"{name} {_flag(p)}" for name, command in commands().items() for p in _drawable(command)} | set(commands())


def pairs(line: list[str]) -> set[str]:
    """The command of a line, and that command with each option of the line."""
    name = next(n for n in (" ".join(line[:2]), line[0]) if n in commands())
    have = {_flag(p) for p in _drawable(commands()[name])}
    return {name} | {f"{name} {word}" for word in line if word in have}


def _drawable(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and p.opts and p.name not in NOT_DRAWN]


def _flag(option: click.Option) -> str:
    return max(option.opts, key=len)


def drawn(r: random.Random, place: Place) -> list[str]:
    """One line: a command, its arguments, options of any kind."""
    every = commands()
    weights = [_RARE.get(name.split()[0], 1.0) for name in every]
    (name,) = r.choices(list(every), weights)
    command = every[name]
    words = [*name.split(), *_FORCED.get(name, ())]
    options = _options(r, name, command, place)
    return words + _arguments(r, name, place) + options


def _arguments(r: random.Random, name: str, place: Place) -> list[str]:
    paths = list(map(str, place.paths))
    if name == "sql":
        return [*paths, r.choice(_QUERIES)]
    if name == "recipe":
        return [r.choice([*recipes(), "no_such"]), *paths]
    if name in ("compare", "gate"):
        return [*paths, "--to", *paths] if r.random() < 0.6 else paths
    if name in ("skill install", "skill show"):
        return [r.choice(("capture-profile", "analyze-profile", "no_such"))]
    if name in ("skill list", "capture plan", "capture hang", "simulate"):
        return []
    if name in ("capture run", "capture ncu", "capture doctor"):
        return []  # the program comes last
    return paths


def _options(r: random.Random, name: str, command: click.Command, place: Place) -> list[str]:
    words: list[str] = []
    have = {p.name for p in command.params}
    timed = {"start", "end"} <= have and r.random() < 0.4
    if timed:
        words += [w for key, value in times(r, place.profile).items() for w in (f"--{key}", value)]
    for option in _drawable(command):
        if timed and option.name in ("start", "end"):
            continue
        if (
            option.required
            or (option.name in _SMALL and name == "simulate")
            or r.random() < _DEAR.get(option.name or "", _OFTEN)
        ):
            words += _option(r, name, option, place)
    if name in ("capture run", "capture ncu", "capture doctor"):
        words += ["--", "python", "train.py"]
    return words


def _option(r: random.Random, name: str, option: click.Option, place: Place) -> list[str]:
    if option.is_flag or option.count:
        return [_flag(option)]
    return [_flag(option), _value(r, name, option, place)]


def _value(r: random.Random, name: str, option: click.Option, place: Place) -> str:
    called = option.name or ""
    made = place.folder / f"made{r.randrange(10**9)}"
    if isinstance(option.type, click.Choice):
        return str(r.choice(option.type.choices))
    if name == "simulate" and called in _SMALL:
        return _SMALL[called]
    if called == "asked":
        return r.choice([*(reports() if name == "stats" else all_rules()), "no_such"])
    if called in ("output", "output_file", "flame", "markdown", "junit", "keep") or (
        called == "to" and name == "skill install"
    ):
        return str(made) + r.choice(_ENDINGS.get(name, ("", ".json", ".csv", ".md", ".parquet")))
    if isinstance(option.type, click.types.FloatParamType):
        return str(r.choice(SHARES))
    if isinstance(option.type, click.types.IntParamType):
        return str(r.choice((1, 2) if called == "jobs" else NUMBERS))
    value = r.choice(_VALUES.get(called, PATTERNS))
    return value.format(folder=place.folder, profile=place.paths[0], made=made, files=FILES) if "{" in value else value
