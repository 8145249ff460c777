"""Which axis a group serves, by its name, its labels and what it carries: one answer for every question."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from jobs import written
from stepscope import api
from stepscope.derive.comm.axes import AXIS_OF, PURPOSE_OF, Axis, axes_of, gradient_groups, named_axes, purpose_by_name
from stepscope.derive.comm.communicators import Communicator
from stepscope.simulate.job.scenario import Scenario

#: What frameworks call their groups: the axes it speaks of, and what it is for.
NAMES = [
    ("ep", ("ep",), "ep_a2a"),
    ("mesh_dp+ep", ("dp", "ep"), "dp"),
    ("dp_cp", ("cp", "dp"), "dp"),
    ("hsdp_replicate", ("dp",), "dp"),
    ("fsdp-shard", ("dp",), "dp"),
    ("EXPERT_DATA_PARALLEL_GROUP", ("dp", "ep"), "dp"),
    ("EXPERT_MODEL_PARALLEL_GROUP", ("ep",), "ep_a2a"),
    ("TENSOR_MODEL_PARALLEL_GROUP", ("tp",), "tp"),
    ("PIPELINE_MODEL_PARALLEL_GROUP", ("pp",), "pp_p2p"),
    ("CONTEXT_PARALLEL_GROUP", ("cp",), "cp_ring"),
    ("tp_pp", ("pp", "tp"), None),  # no single thing: what the operation is tells
    ("default_pg", (), None),
    ("depth", (), None),  # whole words only
    ("", (), None),
]


@pytest.mark.parametrize(("name", "axes", "purpose"), NAMES)
def test_names(name: str, axes: tuple[str, ...], purpose: str | None) -> None:
    assert named_axes(name) == axes
    assert purpose_by_name(name) == purpose


def test_purposes_and_axes_agree() -> None:
    assert all(AXIS_OF[purpose] == axis for axis, purpose in PURPOSE_OF.items())


def group(members: tuple[int, ...], name: str | None = None) -> Communicator:
    return Communicator("c", "c", members, len(members), dict(enumerate(members)), "metadata", name)


def ranks(*labels: str | None) -> pl.DataFrame:
    n = len(labels)
    return pl.DataFrame(
        {"rank": range(n), "setup": labels, "world_size": [n] * n}, schema_overrides={"setup": pl.String}
    )


SQUARE = [f"rank={r}; pp={r // 2}/2 dp=0/1 ep={r % 2}/2" for r in range(4)]
NOTHING = pl.DataFrame(schema={"communicator": pl.String, "purpose": pl.String, "kind": pl.String})


def test_the_axis_of_a_communicator() -> None:
    def axis(comm: Communicator, table: pl.DataFrame, carried: pl.DataFrame = NOTHING) -> Axis | None:
        return axes_of({"c": comm}, carried, table).get("c")

    bare = ranks(None, None, None, None)
    assert axis(group((0, 1)), ranks(*SQUARE)) == Axis("ep", "labels")
    assert axis(group((0, 2)), ranks(*SQUARE)) == Axis("pp", "labels")
    assert axis(group((0, 1), "dp_cp"), bare) == Axis("cp+dp", "name")
    assert axis(group((0, 1, 2, 3)), bare) == Axis("world", "communication")
    exchange = pl.DataFrame({"communicator": ["c"], "purpose": [None], "kind": ["all_to_all"]}, schema=NOTHING.schema)
    assert axis(group((0, 1)), bare, exchange) == Axis("ep", "communication")
    assert axis(group((0, 1)), bare) is None


@pytest.mark.parametrize(
    ("comm", "labels", "yes"),
    [
        (group((0, 1), "hsdp_replicate"), [None] * 4, True),
        (group((0, 1), "dp-shard"), [None] * 4, True),
        (group((0, 1), "tp"), [None] * 4, False),
        (group((0, 1)), SQUARE, True),  # experts are spread over data-parallel ranks
        (group((0, 2)), SQUARE, False),  # two stages of a pipeline
        (group((0, 1, 2, 3)), SQUARE, False),
        (group((0, 1)), [None] * 4, False),
    ],
)
def test_who_reduces_gradients(comm: Communicator, labels: list[str | None], yes: bool) -> None:
    assert gradient_groups({"c": comm}, ranks(*labels)) == ({"c"} if yes else set())


def test_every_question_gives_a_group_the_same_axis() -> None:
    """A group over three axes: its name says all of them, to `mesh` and to `collectives` alike."""
    job = Scenario(schedule="1f1b", pp=2, dp=2, cp=1, ep=2, layers=2, micro_batches=2, steps=1)
    with written(job, ("kineto",)) as (_, folder):
        profile = api.open(folder, cache=False)
        groups = {row["group"]: row["axis"] for row in api.analyse(profile, "mesh").rows.to_dicts() if row["group"]}
        rows = api.analyse(profile, "collectives").rows.to_dicts()
    assert {row["group"]: row["axis"] for row in rows} == {g: a for g, a in groups.items() if g in _groups(rows)}
    assert {a for g, a in groups.items() if "mesh_dp+ep" in g} == {"dp+ep"}


def _groups(rows: list[dict[str, Any]]) -> set[str]:
    return {row["group"] for row in rows}
