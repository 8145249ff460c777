"""What the links between GPUs of one node carry, where nobody measured what collectives reach: an upper bound.

By the model of the GPU (`model/gpus.toml`), for communicators whose ranks have GPUs of their own, of one model, on one
node. What lies between nodes is not in a trace. Bus bandwidth is what links would have to carry in one direction, so
that it stands beside theirs; a switch that adds on its way (NVLS) can pass it.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.errors import CannotAnswer
from stepscope.model.gpus import Gpu, gpu_of
from stepscope.model.ranks import world_of


def of_links(table: pl.DataFrame, sides: Across) -> tuple[pl.Series, str]:
    """The ceiling of each meeting, null where its links are not known; and whose links they are, in words."""
    place = _places(sides.ranks)
    pairs = table.select("communicator", "src", "dst").unique(maintain_order=True)
    members = {c: comm.members for c, comm in sides.matched.communicators.items()}
    linked = [
        _linked(place, (src, dst) if src >= 0 else members.get(communicator, ()))
        for communicator, src, dst in pairs.with_columns(pl.col("src", "dst").fill_null(-1)).iter_rows()
    ]
    rates = pairs.with_columns(pl.Series("rate", [gpu.link_gbps if gpu else None for gpu in linked], dtype=pl.Float64))
    joined = table.select("communicator", "src", "dst").join(
        rates, on=["communicator", "src", "dst"], how="left", nulls_equal=True, maintain_order="left"
    )
    models = {gpu.name: f"{gpu.name} ({gpu.link}, {gpu.link_gbps:g} GB/s)" for gpu in linked if gpu}
    if table.height and not models:
        raise CannotAnswer(
            "--ceiling links: no communicator is known to lie between GPUs of one node whose links are known",
            "measure it: stepscope capture nccl, then --ceiling FOLDER",
        )
    return joined["rate"].alias("ceiling_gbps"), " and ".join(models.values())


def _places(ranks: pl.DataFrame) -> dict[int, tuple[str, int, str | None]]:
    """By rank: host, device and model of its GPU.

    Where hosts have no names, all ranks of a job that are there, each with a device of its own, are on one node.
    """
    places = ranks.select("rank", "host", "device", "gpu")
    unnamed = places["host"] == pl.select(pl.concat_str(pl.lit("rank"), places["rank"].cast(pl.String))).to_series()
    whole = (world_of(ranks) or places.height) == places.height and not places["device"].is_duplicated().any()
    if unnamed.all() and whole:
        places = places.with_columns(pl.lit("").alias("host"))
    return {rank: (host, device, gpu) for rank, host, device, gpu in places.iter_rows()}


def _linked(place: dict[int, tuple[str, int, str | None]], ranks: Collection[int]) -> Gpu | None:
    """The model of GPUs by whose links these ranks are joined; None where that is not known."""
    there = [place[rank] for rank in ranks if rank in place]
    if len(there) < 2 or len(there) < len(ranks):
        return None
    hosts, devices, names = (set(column) for column in zip(*there, strict=True))
    gpu = gpu_of(next(iter(names))) if len(names) == 1 else None
    return gpu if gpu and gpu.link_gbps and len(hosts) == 1 and len(devices) == len(there) else None
