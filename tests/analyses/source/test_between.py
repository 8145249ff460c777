"""Python stacks inferred from those before and after: by hand, on random programs, and by hiding real ones."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import stepscope
from stepscope.analyses.source.between import NO_CHAIN, Looks, shared

DATA = Path(__file__).resolve().parents[2] / "data/source"
Frame = tuple[int, int, int]  # name, file, line


def table(*stacks: list[Frame]) -> pl.DataFrame:
    """Frames of stacks that are given outermost first: chain -1 is the first."""
    rows = [(-1 - n, len(stack) - 1 - i, *frame) for n, stack in enumerate(stacks) for i, frame in enumerate(stack)]
    types = {"chain": pl.Int64, "depth": pl.Int32, "name": pl.UInt32, "file": pl.UInt32, "line": pl.Int32}
    return pl.DataFrame(rows, schema=types, orient="row")


def common(one: list[Frame], other: list[Frame]) -> list[tuple[int, int | None, int | None]]:
    """(name, line, line_to) of what two stacks share, outermost first."""
    chain, frames = shared(table(one, other), np.array([-1]), np.array([-2]))
    mine = frames.filter(pl.col("chain") == chain[0]).sort("depth", descending=True)
    return mine.select("name", "line", "line_to").rows()


def test_what_two_stacks_share():
    main, step = (1, 1, 30), (2, 1, 12)
    assert common([main, step, (3, 2, 5)], [main, step, (3, 2, 5)]) == [(1, 30, None), (2, 12, None), (3, 5, None)]
    # The step went on from line 12 to 14: what it called is not shared.
    assert common([main, step, (3, 2, 5)], [main, (2, 1, 14), (3, 2, 5)]) == [(1, 30, None), (2, 12, 14)]
    assert common([main, (2, 1, 14)], [main, step]) == [(1, 30, None), (2, None, None)]  # back: a loop, at any line
    assert common([main, step], [main]) == [(1, 30, None)]
    assert common([main, step], [(9, 1, 30), step]) == []  # nothing below a difference counts


def test_nothing_shared_is_no_chain():
    frames = table([(1, 1, 1)], [(2, 1, 1)])
    chain, made = shared(frames, np.array([-1, -1, NO_CHAIN]), np.array([-2, -1, -1]))
    assert chain[0] == NO_CHAIN and chain[1] < -2 and chain[2] == NO_CHAIN and made["chain"].to_list() == [chain[1]]


def test_looks_around_a_moment_are_of_its_thread():
    looks = Looks.of(np.array([2, 1, 1]), np.array([5, 30, 10]), np.array([-3, -2, -1]))
    before, after = looks.around(np.array([1, 1, 1, 2, 7]), np.array([10, 9, 30, 6, 6]))
    chain = [[looks.chain[r] if r >= 0 else None for r in rows] for rows in (before, after)]
    assert chain == [[-1, None, -2, -3, None], [-2, -1, None, None, None]]
    within = looks.within(np.array([1, 1, 1]), np.array([10, 11, 11]), np.array([11, 30, 31]))
    assert [looks.chain[r] if r >= 0 else None for r in within] == [-1, None, -2]


@given(st.integers(0, 10_000))
def test_what_is_inferred_was_there(seed):
    """A random program, each of whose calls is of a function of its own, so that none can be taken for another."""
    rng = random.Random(seed)
    stack, history, named = [(0, 0, 1)], [], 0
    for _ in range(60):
        history.append(list(stack))
        act = rng.random()
        name, file, line = stack[-1]
        if act < 0.4 and len(stack) < 8:
            named += 1
            stack[-1] = (name, file, line + 1)
            stack.append((named, named % 3, 1))
        elif act < 0.7 and len(stack) > 1:
            stack.pop()
        else:
            stack[-1] = (name, file, line + 1)
    at = sorted(rng.sample(range(60), 12))
    frames = table(*(history[t] for t in at))
    looks = Looks.of(np.ones(12, np.int64), np.array(at), -1 - np.arange(12))
    asked = np.arange(60)
    before, after = looks.around(np.ones(60, np.int64), asked)
    both = (before >= 0) & (after >= 0)
    chain, made = shared(frames, looks.chain[before[both]], looks.chain[after[both]])
    for t, number in zip(asked[both].tolist(), chain.tolist(), strict=True):
        inferred = made.filter(pl.col("chain") == number).sort("depth", descending=True)
        truth = history[t][: inferred.height]
        assert number != NO_CHAIN and inferred["name"].to_list() == [f[0] for f in truth]
        for (line, to), (_, _, true) in zip(inferred.select("line", "line_to").rows(), truth, strict=True):
            assert line <= true <= (to if to is not None else line)


def test_real_stacks_hidden_one_by_one(tmp_path):
    """Each Python stack that nsys took on an H200, inferred from its neighbours: no function that was not there."""
    file = tmp_path / "backtrace.sqlite"
    file.write_bytes(gzip.decompress((DATA / "backtrace.sqlite.gz").read_bytes()))
    profile = stepscope.open(file, cache=False)
    calls = profile.table("calls", detail=True).drop_nulls("python_chain").sort("start_ns")
    frames = profile.table("stacks").drop("rank")
    chains = calls["python_chain"].to_numpy()
    functions = {
        c: list(zip(f["name"], f["file"], strict=True))
        for (c,), f in frames.sort("depth", descending=True).group_by("chain", maintain_order=True)
    }
    found, made = shared(frames, chains[:-2], chains[2:])
    mine = {
        c: list(zip(f["name"], f["file"], strict=True))
        for (c,), f in made.sort("depth", descending=True).group_by("chain", maintain_order=True)
    }
    assert calls["tid"].n_unique() == 1 and len(chains) == 44 and (found != NO_CHAIN).all()
    for inferred, truth in zip(found.tolist(), chains[1:-1].tolist(), strict=True):
        assert mine[inferred] == functions[truth][: len(mine[inferred])]
