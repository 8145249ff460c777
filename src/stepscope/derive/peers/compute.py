"""A rank's compute beside that of its peers: who does the same work, and who computes longer than is usual among them.

Peers are the other ranks of a pipeline stage, by their labels or, without labels, those that communicate as often with
as many. They are compared kernel by kernel; what is usual is the median of the others, so that a rank is never compared
with itself, and half of the ranks may be slow. A rank without peers is compared by the mean of its kernels with all
ranks that run kernels of the same names. A rank that recorded less than its peers is compared with nobody.

A rank that computes longer has a slow GPU only where it makes the same launches and each takes longer (`launches.py`);
more launches or larger ones are more to do.

The rule applies to any stretch of time: `stragglers` asks it of the capture, `diagnose` and `--what-if even-rank` ask
it of the step.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.across import Across
from stepscope.derive.peers.launches import LIKE, like_launches, median_of_others
from stepscope.derive.rank.data import COMM, COMPUTE, RankData
from stepscope.intervals.arrays import I64
from stepscope.model.labels import setups
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

WORTH_A_NAME = Threshold(
    2.0,
    "% of the step or capture",
    "an excess below it is not shown by `diagnose` either",
    ("tests/derive/peers/test_compute.py", "decision 0018"),
)
ALIKE = Threshold(
    1.03,
    "times the usual compute",
    "clocks of GPUs of one kind differ by as much",
    ("tests/derive/peers/test_compute.py", "decision 0018"),
)
BEYOND_CHANCE = Threshold(
    2.0,
    "standard errors",
    "what single kernels vary by makes ranks that share a GPU differ by up to 1.8 on healthy captures; planted faults "
    "begin at 2.3 (a GPU that is 5 % slower, over one step)",
    ("h200/hf/hf4_straggler.sqlite", "tests/data/moe_reference", "decision 0018"),
)
ALL_BUT = Threshold(
    20.0,
    "% of the compute",
    "a slow GPU makes all kernels longer but those that the host or memory bounds",
    ("tests/derive/peers/test_compute.py", "decision 0018"),
)
RECORDED_WHOLE = Threshold(
    90.0,
    "% of the communications of its peers",
    "a rank with fewer was cut off, and has less of everything",
    ("h200/moe4mps/cut_off.sqlite",),
)


#: Compute kernels of a stretch, per rank, name and size of the grid; `variance` is that of one kernel's time.
KERNELS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "name": pl.String,
    "n": pl.Int64,
    "ns": pl.Int64,
    "variance": pl.Float64,
    "blocks": pl.Int64,  # of each launch; 0 where the grid was not recorded
}


class Compared(Struct, frozen=True):
    """One rank: a row per kernel name with `n`, `ns`, and `like_n`, `like_ns` of its peers; and `launches.LIKE`."""

    rank: int
    kernels: pl.DataFrame
    #: what the sum differs by where every kernel varies as those of its name do
    chance_ns: float
    peers: int
    #: launches beyond those of its peers, all kernels together: some may take the place of others
    launches_beyond: float = np.inf

    @property
    def alone(self) -> bool:
        """Compared by the names of kernels alone."""
        return self.peers == 0

    @property
    def excess_ns(self) -> int:
        """Compute beyond that of its peers, all kernels together: some may well be shorter."""
        return max(int((self.kernels["ns"] - self.kernels["like_ns"]).sum()), 0)

    @property
    def much(self) -> bool:
        """Whether the excess is beyond what like GPUs differ by."""
        return self.excess_ns > (ALIKE.value - 1) * float(self.kernels["like_ns"].sum())

    @property
    def sure(self) -> bool:
        """Whether the excess is beyond what single kernels vary by."""
        return self.excess_ns > BEYOND_CHANCE.value * self.chance_ns

    @property
    def slow_gpu(self) -> bool:
        """Whether nearly all of its launches take longer than the same ones of its peers; else it has more to do."""
        return self.ratio_at(ALL_BUT.share) >= ALIKE.value

    @property
    def as_fast(self) -> bool:
        """Whether launches that its peers make, too, take as long in the middle: the GPU is as fast as theirs."""
        paced = self.kernels.filter(pl.col("pace").is_not_null() & (pl.col("like_ns") > 0))
        return paced.height > 0 and self.ratio_at(0.5) < ALIKE.value

    @property
    def launches_more(self) -> float:
        """How many times the launches of its peers it makes, in the kernels that take longer in all.

        For larger products another kernel may be chosen, which no peer launches: it takes the place of theirs.
        """
        over = self.slower
        like = float(over["like_n"].sum())
        more = min(float(over["n"].sum()) - like, self.launches_beyond)
        return max(like + more, 0.0) / max(like, 1.0) if over.height else 1.0

    @property
    def size_more(self) -> float | None:
        """How many times as large its launches are, in the median of those that tell, by time; null where none do."""
        sized = self.slower.filter(pl.col("size").is_not_null()).sort("size")
        if sized.height == 0:
            return None
        part = sized["ns"].cum_sum() / max(int(sized["ns"].sum()), 1)
        return float(sized.filter(part >= 0.5)["size"][0])

    @property
    def slower(self) -> pl.DataFrame:
        """Kernels that take longer in all than the peers' do, most beyond first."""
        longer = self.kernels.filter(pl.col("ns") > ALIKE.value * pl.col("like_ns"))
        return longer.sort([pl.col("ns") - pl.col("like_ns"), "name"], descending=[True, False])

    def ratio_at(self, share: float) -> float:
        """How much slower the rank is at launches that its peers make, too, in all but this share of its compute."""
        table = self.kernels.filter((pl.col("like_ns") > 0) & pl.col("pace").is_not_null()).sort("pace")
        part = table["like_ns"].cum_sum() / max(float(table["like_ns"].sum()), 1.0)
        above = table.filter(part >= share)
        return float(above["pace"][0]) if above.height else 1.0

    def factors(self, keep: float = 0.0) -> dict[str, float]:
        """For a replay: what makes its kernels as long as its peers', but for a share of the difference."""
        ratio = (pl.col("like_ns") + keep * (pl.col("ns") - pl.col("like_ns"))) / pl.col("ns")
        table = self.kernels.filter(pl.col("ns") > 0).select("name", ratio.alias("factor"))
        return dict(table.filter((pl.col("factor") * ALIKE.value < 1) | (pl.col("factor") > ALIKE.value)).iter_rows())


def kernels_of(profile: Profile, data: RankData, ops: I64, blocks: I64 | None = None) -> pl.DataFrame:
    """The `KERNELS` of one rank among these ops; with the `blocks` of all its ops, by the size of their grids."""
    ops = ops[data.role[ops] == COMPUTE]
    size = np.zeros(len(ops), np.int64) if blocks is None else blocks[ops]
    table = pl.DataFrame({"id": data.name[ops], "blocks": size, "took": (data.end - data.start)[ops]})
    table = table.group_by("id", "blocks").agg(
        pl.len().alias("n"), pl.col("took").sum().alias("ns"), pl.col("took").var().fill_null(0.0).alias("variance")
    )
    table = table.with_columns(profile.names.gather(table["id"]).alias("name"), pl.lit(data.rank).alias("rank"))
    # Two ids may be one name: of several files, or demangled alike.
    return table.sort("name", "id", "blocks").select(pl.col(c).cast(t) for c, t in KERNELS.items())


def blocks_of(detailed: pl.DataFrame) -> I64:
    """Blocks of each op's grid, from the ops with their details; 0 where it was not recorded."""
    axes = [pl.col(f"grid_{axis}").cast(pl.Int64) for axis in "xyz"]
    blocks: I64 = detailed.select(pl.fold(pl.lit(1, pl.Int64), operator.mul, axes).fill_null(0)).to_series().to_numpy()
    return blocks


def communications_of(data: RankData, ops: I64) -> int:
    """How much of the work a rank recorded, whatever its speed: communications among these ops."""
    return int((data.role[ops] == COMM).sum())


def same_work(ranks: pl.DataFrame, a: Across | None) -> dict[int, str]:
    """Ranks that do the same work have the same text: the pipeline coordinate, else what they communicate.

    Without labels and without matched communication nothing tells ranks apart.
    """
    numbers = ranks["rank"].to_list()
    labels = setups(ranks)
    if len(labels) == len(numbers):
        return {rank: str(labels[rank].at("pp")) for rank in numbers}
    if a is None:
        return {rank: str(labels[rank].at("pp")) if rank in labels else "" for rank in numbers}
    counts = (
        a.matched.sides.select("rank", "meeting")
        .join(a.meetings.select("meeting", "kind", "size"), on="meeting")
        .group_by("rank", "kind", "size")
        .len()
        .sort("rank", "kind", "size")
        .group_by("rank", maintain_order=True)
        .agg(pl.concat_str("kind", "size", "len", separator=":").str.join(" ").alias("text"))
    )
    texts = dict(counts.iter_rows())
    return {rank: texts.get(rank, "") for rank in numbers}


def recorded_whole(communications: Mapping[int, int], groups: Mapping[int, str]) -> set[int]:
    """Ranks that recorded about as many communications as those that do the same: the others stopped early.

    That is a measure of work which no slowness changes; neither time nor the number of kernels is.
    """
    most: dict[str, int] = {}
    for rank, n in communications.items():
        most[groups[rank]] = max(most.get(groups[rank], 0), n)
    return {rank for rank, n in communications.items() if n >= RECORDED_WHOLE.share * most[groups[rank]]}


def recorded_from_to(data: RankData) -> tuple[int, int]:
    """The first and the last moment of which anything of the rank was recorded: a GPU or a host may well begin late.

    Ranges around all of its calls do not count: a label of the whole run is not of the capture.
    """
    calls = data.calls
    first, last = (calls["start_ns"].min(), calls["end_ns"].max()) if calls.height else (None, None)
    around = (pl.col("start_ns") < first) & (pl.col("end_ns") > last) if calls.height else pl.lit(False)
    tables = [t for t in (data.ops, calls, data.ranges.filter(around.not_())) if t.height]
    begin = min((int(t["start_ns"].min()) for t in tables), default=0)  # type: ignore[arg-type]
    return begin, max((int(t["end_ns"].max()) for t in tables), default=0)  # type: ignore[arg-type]


def recorded_by_all(spans: Mapping[int, Sequence[int]]) -> tuple[int, int] | None:
    """From begin and end of each rank's records: the stretch that all have, where they are of unlike length; else none.

    Longer records have more of everything. Without a stretch in common it is empty.
    """
    lengths = [end - begin for begin, end in spans.values()]
    if min(lengths, default=0) >= RECORDED_WHOLE.share * max(lengths, default=0):
        return None
    begin = max(begin for begin, _ in spans.values())
    return begin, max(min(end for _, end in spans.values()), begin)


def compare(
    kernels: pl.DataFrame, groups: Mapping[int, str], whole: set[int], sized: pl.DataFrame | None = None
) -> dict[int, Compared]:
    """Every rank of `whole` beside its peers, by the `KERNELS` of a stretch; launches by those that are `sized`."""
    present = sorted(whole & set(kernels["rank"].unique().to_list()))
    if len(present) < 2:
        return {}
    size = Counter(groups[rank] for rank in present)
    others = {rank: size[groups[rank]] - 1 for rank in present}

    def grouped(table: pl.DataFrame) -> pl.DataFrame:
        return table.filter(pl.col("rank").is_in(present)).with_columns(
            pl.col("rank").replace_strict(groups, return_dtype=pl.String).alias("group"),
            pl.col("rank").replace_strict(others, return_dtype=pl.Int64).alias("peers"),
        )

    table = (
        grouped(kernels)
        .group_by("rank", "group", "peers", "name", maintain_order=True)
        .agg(pl.col("n", "ns").sum(), pl.col("variance").max())
        .with_columns((pl.col("ns") / pl.col("n")).alias("mean"))
    )
    like = like_launches(grouped(kernels if sized is None else sized))
    table = _beside(table).join(like, on=["rank", "name"], how="left", maintain_order="left")
    ranks = table.partition_by("rank", as_dict=True, maintain_order=True)
    chance = dict(table.group_by("rank").agg(pl.col("chance").sum().sqrt()).iter_rows())
    columns = ("name", "n", "ns", "like_n", "like_ns", *LIKE)
    beyond = _launches_beyond(grouped(kernels))
    return {
        rank: Compared(rank, rows.select(columns), float(chance[rank]), others[rank], beyond[rank])
        for (rank,), rows in ranks.items()
    }


def _launches_beyond(table: pl.DataFrame) -> dict[int, float]:
    """Launches of each rank beyond what is usual among its peers; of a rank without peers nothing limits them."""
    totals = table.group_by("rank", "group", maintain_order=True).agg(pl.col("n").sum())
    usual = median_of_others(totals, ["group"], "n")
    beyond = np.where(np.isnan(usual), np.inf, np.maximum(totals["n"].to_numpy() - np.nan_to_num(usual), 0.0))
    return dict(zip(totals["rank"].to_list(), beyond.tolist(), strict=True))


def longer(
    compared: Mapping[int, Compared], stretch_ns: float, known: Container[int] = frozenset()
) -> dict[int, Compared]:
    """Ranks that compute longer than their peers by more than chance, and by a share of the stretch worth a name.

    Of ranks that are `known` to be slow, from a longer stretch around this one, a short one need not prove it again.
    """
    worth = {r: c for r, c in compared.items() if c.much and c.excess_ns >= WORTH_A_NAME.share * stretch_ns}
    clear = {r: c for r, c in worth.items() if c.sure or r in known}
    # Kernels of other stages have other shapes: only a rank that is slow in all of them stands out.
    return {r: c for r, c in clear.items() if not c.alone or c.slow_gpu}


def _beside(table: pl.DataFrame) -> pl.DataFrame:
    """The table with `like_n` and `like_ns`, what is usual for a kernel of the name, and the square of `chance`."""
    columns = ("n", "ns", "mean", "variance")
    among_peers = {c: median_of_others(table, ["group", "name"], c) for c in columns}
    among_all = {c: median_of_others(table, ["name"], c) for c in columns}
    alone, n = table["peers"].to_numpy() == 0, table["n"].to_numpy()
    like_n = np.where(alone, n, among_peers["n"])
    # Other stages have more or fewer of them: a kernel takes as long as theirs on average.
    like_ns = np.where(alone, among_all["mean"] * n, among_peers["ns"])
    variance = np.where(alone, among_all["variance"], among_peers["variance"])
    table = table.with_columns(
        pl.Series("like_n", like_n),
        pl.Series("like_ns", like_ns).fill_nan(None),
        pl.Series("chance", n * table["variance"].to_numpy() + np.nan_to_num(like_n * variance)),
    )
    # What no other stage runs says nothing of a rank alone; what no peer runs may be more to do.
    table = table.filter(pl.col("like_ns").is_not_null() | (pl.col("peers") > 0))
    return _only_here(table)


def _only_here(table: pl.DataFrame) -> pl.DataFrame:
    """Kernels that no peer runs count as far as the rank computes more than its peers: else they replace others."""
    totals = table.group_by("rank", "group", maintain_order=True).agg(
        pl.col("ns").sum().alias("total"), pl.col("ns").filter(pl.col("like_ns").is_null()).sum().alias("only")
    )
    usual = pl.Series("usual", median_of_others(totals, ["group"], "total")).fill_nan(None)
    share = ((pl.col("total") - usual).clip(0) / pl.col("only")).clip(0, 1).fill_nan(0).fill_null(0)
    table = table.join(totals.select("rank", share.alias("more")), on="rank", maintain_order="left")
    kept = 1 - pl.col("more")
    return table.with_columns(
        pl.coalesce("like_ns", pl.col("ns") * kept).alias("like_ns"),
        pl.when(pl.col("like_ns").is_null()).then(pl.col("n") * kept).otherwise("like_n").alias("like_n"),
    )
