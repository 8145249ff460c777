"""Which process is which rank, over all the sources of a profile (semantics §1)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.labels import axis_sizes, setups
from stepscope.model.note import Note, noted
from stepscope.model.schema import TABLES
from stepscope.model.source import Source

_IN_FILE_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[_-]?(\d+)", re.IGNORECASE)
#: Names of torch's traces that tell the host: `rank3.HOST.pt.trace.json` (`capture run`) and
#: `HOST_PID.TIME.pt.trace.json` (torch's own handler).
_HOST_IN_NAME = re.compile(r"^(?:rank\d+\.([^.]+)|(.+)_\d+\.\d{10,})\.pt\.trace\.json")

#: The `ranks` table of a profile.
RANKS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "pid": pl.Int64,
    "host": pl.String,
    "device": pl.Int32,
    "gpu": pl.String,
    "gpu_id": pl.Int64,
    "setup": pl.String,
    "world_size": pl.Int32,
    "rank_from": pl.String,
    "source": pl.Int32,
    "proc": pl.Int32,
}

RANKS_DOC = {
    "rank": "number of the rank; unique within the profile",
    "pid": "process id on its host; pids collide across hosts",
    "host": "host name, or the file's name where the source does not say",
    "device": "CUDA ordinal of the device that the process used first",
    "gpu": "name of that device",
    "gpu_id": "number of that device on its host, whatever the process calls it; null where the source does not say",
    "setup": "the setup label as written; null where there is none",
    "world_size": "ranks of the job, where the source says",
    "rank_from": "how the rank is known: setup label, distributedInfo, NCCL payload, file name, or inferred",
    "source": "which of the profile's sources it came from",
    "proc": "index of the process within that source",
}

#: `rank_from` of a rank that nothing in the trace states.
INFERRED = "order of pids"


def assign(sources: Sequence[Source]) -> tuple[pl.DataFrame, list[Note]]:
    """The `ranks` table, sorted by rank, and notes on what was inferred.

    Sources without a timeline (what Nsight Compute measured) say something of the ranks of others: only where there is
    nothing else are they ranks of their own.
    """
    timed = [index for index, source in enumerate(sources) if has_timeline(source)]
    frames = []
    for index in timed or range(len(sources)):
        source = sources[index]
        processes = source.processes()
        alone = processes["pid"].n_unique() == 1 and processes["rank"].is_null().all()
        if (
            alone
            and (processes.height == 1 or processes["devices"].is_not_null().all())
            and (n := rank_in_name(source.path)) is not None
        ):
            processes = processes.with_columns(
                pl.lit(n, pl.Int32).alias("rank"), pl.lit("file name").alias("rank_from")
            )
        frames.append(
            processes.with_columns(
                pl.lit(index, pl.Int32).alias("source"),
                pl.col("host").fill_null(_host_in_name(source.path)),
            )
        )
    table = _of_devices(pl.concat(frames)).select(list(RANKS)).cast(RANKS)  # type: ignore[arg-type]
    _refuse_strangers(table, sources)
    _refuse_twins(table, sources)
    unknown = table.filter(pl.col("rank").is_null()).height
    notes = []
    if unknown:
        table = _number(table)
    if unknown and timed:
        # Two files that say no rank may as well be two runs of a program that has one.
        apart = ""
        if len(timed) == unknown == table.height == 2:
            a, b = (sources[index].path for index in timed)
            apart = f"; if they are two runs: {_comparing(a, b, sources)}"
        notes.append(noted("ranks-inferred", source=INFERRED, without=unknown, all=table.height, apart=apart))
    notes += [*_coinciding(table), *_sharing(table)]
    # In one piece: of a file per rank it has as many, and every look-up of a rank would walk all of them.
    return table.sort("rank").rechunk(), notes


def _of_devices(table: pl.DataFrame) -> pl.DataFrame:
    """Ranks of the devices of processes with several GPUs: those of a process follow each other."""
    most = table["devices"].str.count_matches(",").max()
    if not isinstance(most, int):
        return table
    per_process = most + 1
    place = pl.int_range(pl.len()).over("source", "pid")
    return table.with_columns(
        pl.col("rank") * per_process + pl.when(pl.col("devices").is_not_null()).then(place).otherwise(0),
        pl.col("world_size") * per_process,
        pl.when(pl.col("devices").is_not_null()).then(pl.col("rank_from") + ", device").otherwise("rank_from"),
    )


def has_timeline(source: Source) -> bool:
    """Whether the source is of ranks: not where all that it has is of none."""
    tables = source.tables()
    return not tables or any(TABLES[table].ranked for table in tables)


def world_of(ranks: pl.DataFrame) -> int | None:
    """How many ranks the job has, where the sources say."""
    stated = ranks["world_size"].drop_nulls()
    return int(max(stated.max(), ranks.height)) if len(stated) else None  # type: ignore[type-var,arg-type]


def gpu_name(ranks: pl.DataFrame, rank: int) -> str | None:
    """The name of a rank's GPU, where the trace has it."""
    gpus = ranks["gpu"].filter(ranks["rank"] == rank).drop_nulls()  # asked per rank: nothing else is copied
    return str(gpus[0]) if len(gpus) else None


def world_summary(ranks: pl.DataFrame) -> dict[str, int | str]:
    """`world`, and `ranks_missing` where not all of them are there; nothing where no source says."""
    world = world_of(ranks)
    missing = ranks_text(set(range(world or 0)) - set(ranks["rank"].to_list()))
    return ({"world": world} if world else {}) | ({"ranks_missing": missing} if missing else {})


def ranks_text(ranks: Iterable[int]) -> str:
    """`0-3,8`: ranks as the command line takes them."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def some_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-3,8`: ranks as notes name them."""
    named = set(ranks)
    return f"rank{'s' * (len(named) != 1)} {ranks_text(named)}"


def _host_in_name(path: Path) -> str:
    """The host that a file's name tells, else what the name begins with."""
    match = _HOST_IN_NAME.match(path.name)
    return (match[1] or match[2]) if match else path.stem.split(".")[0]


def rank_in_name(path: Path) -> int | None:
    """`rank3.pt.trace.json.gz` is rank 3's."""
    numbers = _IN_FILE_NAME.findall(path.name)
    return int(numbers[-1]) if numbers else None


def _refuse_strangers(table: pl.DataFrame, sources: Sequence[Source]) -> None:
    """Files of jobs that had different numbers of ranks.

    An nsys export knows only the widest communicator that it saw made: beside a setup label, that is not a world.
    """
    nsys = [index for index, source in enumerate(sources) if source.info.format.startswith("nsys")]
    guessed = pl.col("source").is_in(nsys) & (pl.col("rank_from") == "setup label")
    stated = table.filter(~guessed.fill_null(False)).drop_nulls("world_size").sort("source", "pid")
    worlds = stated.unique("world_size", keep="first", maintain_order=True)
    worlds = worlds.unique("source", keep="first", maintain_order=True)
    if worlds.height < 2:
        return
    (first, a), (second, b) = (
        (size, sources[at].path) for size, at in worlds.select("world_size", "source").head(2).iter_rows()
    )
    raise BadInput(
        f"{a} is of a job of {first} rank{'s' * (first != 1)}, {b} of one of {second}",
        f"give the files of one job; to compare two: {_comparing(a, b, sources)}",
    )


def _refuse_twins(table: pl.DataFrame, sources: Sequence[Source]) -> None:
    stated = table.filter(pl.col("rank").is_not_null())
    twins = stated.filter(pl.col("rank").is_duplicated()).sort("rank", "source", "pid")
    if twins.height == 0:
        return
    rank = twins["rank"][0]
    first, second = twins.filter(pl.col("rank") == rank).head(2).iter_rows(named=True)
    a, b = (sources[row["source"]].path for row in (first, second))
    if a == b:
        raise BadInput(f"{a}: pids {first['pid']} and {second['pid']} both say they are rank {rank}", "fix the labels")
    raise BadInput(
        f"{a} and {b} both hold rank {rank}",
        f"give each rank of one run once; to compare two runs: {_comparing(a, b, sources)}",
    )


def _comparing(a: Path, b: Path, sources: Sequence[Source]) -> str:
    """The command that compares two runs; a folder stands for the files in it."""
    beside = [source.path.parent for source in sources]
    apart = a.parent != b.parent
    sides = (str(p.parent if apart and beside.count(p.parent) > 1 else p) for p in (a, b))
    return f"stepscope compare {' --to '.join(map(shlex.quote, sides))}"


def sharing(table: pl.DataFrame) -> list[list[int]]:
    """Ranks of the `ranks` table that are on one GPU, as far as the sources tell; each list is one GPU's."""
    by_device = table.drop_nulls("gpu_id").group_by("host", "gpu_id", maintain_order=True).agg("rank")
    return sorted(sorted(ranks) for ranks in by_device["rank"].to_list() if len(ranks) > 1)


def _sharing(table: pl.DataFrame) -> list[Note]:
    """A note on ranks that ran on the same device."""
    shared = sharing(table)
    if not shared:
        return []
    who = " and ".join(some_ranks(ranks) for ranks in shared[:4]) + (" and others" if len(shared) > 4 else "")
    each = " each" * (len(shared) > 1)
    return [noted("shared-gpu", who=who, each=each)]


def _coinciding(table: pl.DataFrame) -> list[Note]:
    """A note on labels that put two ranks in one place, where there are places for all of them."""
    labels = setups(table)
    places: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank, setup in labels.items():
        places.setdefault(tuple((axis, at) for axis, (at, _) in sorted(setup.axes.items())), []).append(rank)
    room = prod(axis_sizes(labels).values())
    twice = next(((place, ranks) for place, ranks in places.items() if place and len(ranks) > 1), None)
    if twice is None or room < max(len(labels), world_of(table) or 0):
        return []
    place, ranks = twice
    where = " ".join(f"{axis}={at}" for axis, at in place)
    return [noted("coordinates-twice", some=some_ranks(ranks), where=where, ranks=ranks)]


def _number(table: pl.DataFrame) -> pl.DataFrame:
    """Give processes without a rank the lowest free numbers, in the order of files and pids."""
    taken = set(table["rank"].drop_nulls().to_list())
    free = (n for n in range(table.height) if n not in taken)
    table = table.sort("source", "pid")
    numbers = [next(free) if r is None else r for r in table["rank"].to_list()]
    return table.with_columns(
        pl.Series("rank", numbers, dtype=pl.Int32),
        pl.when(pl.col("rank").is_null()).then(pl.lit(INFERRED)).otherwise(pl.col("rank_from")).alias("rank_from"),
    )
