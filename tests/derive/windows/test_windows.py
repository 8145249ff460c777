"""window, iterations, streams: chosen on the host, measured on the GPU, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake import call, comm, copy, make, nvtx, op
from stepscope import api
from stepscope.analyses.info import info
from stepscope.analyses.iterations import iterations
from stepscope.analyses.streams import streams
from stepscope.analyses.window import window
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import WHOLE
from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.model.profile import Profile
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.verify import verify


def _steps(n: int = 5, lag: int = 1000, **more: object) -> dict[str, list[dict[str, object]]]:
    """`n` steps of 10 ns on the host; each launches one op, which runs `lag` later."""
    return {
        "ops": [op(lag + 10 * k, lag + 10 * k + 7, call=k + 1) for k in range(n)],
        "calls": [call(10 * k + 2, 10 * k + 3, k + 1) for k in range(n)],
        "ranges": [nvtx(10 * k, 10 * k + 9, f"step {k}") for k in range(n)],
    } | more


def test_ops_are_chosen_by_launch_and_measured_on_the_gpu():
    row = window(make(**_steps()), WindowSpec(index=2)).rows.to_dicts()[0]
    assert (row["label"], row["index"], row["count"], row["ops"]) == ("step 2", 2, 5, 1)
    # The GPU is 1 µs behind: the step lasts from the end of the op before to that of its own.
    assert (row["cpu_start_ns"], row["cpu_end_ns"], row["gpu_start_ns"], row["gpu_end_ns"]) == (19, 29, 1017, 1027)


def test_the_first_step_begins_with_its_range():
    first = window(make(**_steps(lag=5)), WindowSpec(index=0)).rows.to_dicts()[0]
    assert (first["cpu_start_ns"], first["gpu_start_ns"], first["gpu_end_ns"]) == (0, 0, 12)
    tables = _steps()
    tables["ops"].append(op(990, 999, call=99))
    tables["calls"].append(call(-9, -8, 99))
    before = window(make(**tables), WindowSpec(index=0)).rows.to_dicts()[0]
    assert (before["gpu_start_ns"], before["gpu_end_ns"]) == (999, 1007)  # the GPU was at something else until then


def test_the_median_step_is_that_of_all_ranks():
    """Two ranks whose own medians differ: lengths are added, and of equal ones the first counts."""
    tables: dict[str, list[dict[str, object]]] = {"ops": [], "calls": [], "ranges": []}
    for rank, ends in enumerate([[10, 20, 50, 60, 90], [10, 50, 60, 70, 90]]):  # 10 10 30 10 30, 10 40 10 10 20
        for k, end in enumerate(ends):
            begin = [0, *ends][k]
            tables["ops"].append(op(1000 + begin, 1000 + end, call=k + 1, proc=rank))
            tables["calls"].append(call(10 * k + 2, 10 * k + 3, k + 1) | {"proc": rank})
            tables["ranges"].append(nvtx(10 * k, 10 * k + 9, f"step {k}", proc=rank))
    for rank in range(2):  # the step before, so that the first one is as long as it looks
        tables["ops"].append(op(990, 1000, call=9, proc=rank))
        tables["calls"].append(call(-9, -8, 9) | {"proc": rank})
    labels = window(make(**tables), WindowSpec()).rows["label"].to_list()  # 20 50 40 20 50: the median is 40
    assert labels == ["step 2", "step 2"]


def test_a_step_that_a_rank_did_not_record_is_not_chosen():
    tables = _steps(3)
    for name, rows in _steps(2).items():
        tables[name] += [row | {"proc": 1} for row in rows]
    assert set(window(make(**tables), WindowSpec()).rows["label"]) <= {"step 0", "step 1"}


def test_an_op_without_a_launch_belongs_where_it_starts():
    tables = _steps()
    tables["ops"] += [op(1022, 1023, "lost"), op(2000, 2001, "later")]
    r = window(make(**tables), WindowSpec(index=2))
    assert r.rows["ops"].to_list() == [2]
    assert any("2 GPU ops have no launch record" in n for n in r.notes)


def test_default_anchors_in_their_order():
    chunk = nvtx(0, 100, "forward chunk 1 (phase0) backward chunk 0 (phase1)")
    step = nvtx(0, 100, "ProfilerStep#3")
    tables = _steps()
    everything = tables | {"ranges": [*tables["ranges"], chunk, step]}
    assert window(make(**everything), WindowSpec()).rows["label"].to_list() == [chunk["name"]]
    everything["ranges"].remove(chunk)
    assert window(make(**everything), WindowSpec()).rows["label"].to_list() == ["ProfilerStep#3"]
    alone = {k: v for k, v in tables.items() if k != "ranges"}
    r = window(make(**alone), WindowSpec())
    assert r.rows["label"].to_list() == [WHOLE] and any("whole capture" in n for n in r.notes)


def test_the_shallowest_numbered_family_is_the_step():
    tables = _steps(3)
    tables["ranges"] += [nvtx(10 * k + 1, 10 * k + 4, f"layer {i}") for k in range(3) for i in (k,)]
    assert window(make(**tables), WindowSpec(index="all")).rows["label"].to_list() == ["step 0", "step 1", "step 2"]


def test_steps_that_are_counted_anew_in_every_epoch_are_told_apart():
    """`batch 0` to `batch 2`, twice: six steps, none of them another's."""
    tables = _steps(6)
    tables["ranges"] = [row | {"name": f"batch {k % 3}"} for k, row in enumerate(tables["ranges"])]
    profile = make(**tables)
    names = ["batch 0 #0", "batch 1 #0", "batch 2 #0", "batch 0 #1", "batch 1 #1", "batch 2 #1"]
    assert window(profile, WindowSpec(index="all")).rows["label"].to_list() == names
    assert api.analyse(profile, "run", by="step").rows["label"].to_list() == names
    assert api.analyse(profile, "diagnose").window[0]["label"] in names


def test_what_a_tool_notes_of_calls_is_no_step():
    """pyprof and DLProf write a dictionary around every call, with numbers that run."""
    tables = _steps(4)
    tables["ranges"] = [
        row | {"name": f"{{'traceMarker': ['net.py:42'], 'funcStack': '/Linear::_call_impl({k})/linear'}}"}
        for k, row in enumerate(tables["ranges"])
    ]
    assert window(make(**tables), WindowSpec()).rows["label"].to_list() == [WHOLE]


def test_index_anchor_and_their_mistakes():
    p = make(**_steps())
    assert window(p, WindowSpec(index=-1)).rows["label"].to_list() == ["step 4"]
    assert window(p, WindowSpec(anchor="step [13]", index="all")).rows["label"].to_list() == ["step 1", "step 3"]
    with pytest.raises(BadInput, match="5 instances"):
        window(p, WindowSpec(index=5))
    with pytest.raises(CannotAnswer, match="--anchor"):
        window(p, WindowSpec(anchor="nothing"))
    for bad in ({"start": 1}, {"start": 5, "end": 5}, {"start": 1, "end": 2, "anchor": "x"}, {"anchor": "("}):
        with pytest.raises(BadInput):
            WindowSpec(**bad)


def test_match_takes_the_same_chunk_on_every_rank():
    def chunks(proc: int, order: list[int]) -> list[dict[str, object]]:
        return [
            nvtx(10 * k, 10 * k + 9, f"forward chunk {i} backward chunk {i}", proc=proc) for k, i in enumerate(order)
        ]

    p = make(ranges=[*chunks(0, [0, 1, 2]), *chunks(1, [1, 2, 3])], ops=[op(0, 1), op(0, 1, proc=1)])
    own = window(p, WindowSpec()).rows["label"].to_list()
    same = window(p, WindowSpec(match=True)).rows["label"].to_list()
    assert own == ["forward chunk 1 backward chunk 1", "forward chunk 2 backward chunk 2"]
    assert same == ["forward chunk 1 backward chunk 1"] * 2


def test_a_rank_without_work_in_the_window_is_said(shared: Path):
    profile = api.open(shared / "traces/h200/moe4mps/cut_off.sqlite", cache=False)
    for command in ("window", "breakdown", "overlap", "exposed", "idle", "kernels", "nvtx", "launches", "concurrency"):
        notes = getattr(profile, command)(chunk=True).notes
        assert any(n.startswith("rank 2: no GPU work in the window") for n in notes), command
        notes = getattr(profile, command)(step=True).notes
        assert any(n.startswith("rank 2: no GPU work in its last 5 of 8") for n in notes), command
    assert set(profile.breakdown(chunk=True).rows["rank"]) == {0, 1, 3}


def test_info_says_where_a_rank_was_cut_off():
    tables = _steps(4)
    del tables["ops"][2:], tables["calls"][2:]
    said = "rank 0: no GPU work in its last 2 of 4 steps or chunks (the capture may have ended early there)"
    assert info(make(**tables)).notes == [said]
    assert info(make(**_steps(4))).notes == []


def test_capture_verify_means_the_same_by_cut_off():
    tables = _steps(4)
    del tables["ops"][2:], tables["calls"][2:]
    assert _not_cut_off(make(**tables)) == (
        "failed",
        "rank 0: the last 2 of 4 chunks or steps have ranges but no GPU work",
    )
    assert _not_cut_off(make(**_steps(4)))[0] == "ok"
    assert _not_cut_off(make(ops=[op(0, 1)]))[0] == "skipped"


def test_a_step_without_gpu_work_that_others_follow_was_not_cut_off():
    tables = _steps(4)
    del tables["ops"][1], tables["calls"][1]
    profile = make(**tables)
    assert info(profile).notes == []
    assert _not_cut_off(profile)[0] == "ok"


def _not_cut_off(profile: Profile) -> tuple[str, str]:
    try:
        result = verify(profile, [])
    except GateFailed as failed:
        assert failed.result is not None
        result = failed.result
    row = next(r for r in result.rows.to_dicts() if r["check"] == "not cut off")
    return row["status"], row["found"]


def test_the_pace_and_its_outliers():
    tables = _steps(9)
    for k in range(5, 9):  # the fifth op takes 900 ns, and those behind it come later
        tables["ops"][k]["start_ns"] += 900
        tables["ops"][k]["end_ns"] += 900
    tables["ops"][4]["end_ns"] += 900
    r = iterations(make(**tables), WindowSpec())
    assert r.rows["outlier"].to_list() == [k == 4 for k in range(9)]
    assert r.rows["cut"].to_list() == ["begin"] + [None] * 8  # nothing ran before the first: it is no sample
    assert r.rows["gpu_ns"].to_list() == [1007] + [10] * 3 + [910] + [10] * 4
    assert r.rows["period_ns"].to_list() == r.rows["gpu_ns"].to_list()
    assert r.summary["pace"][0] == {
        "rank": 0,
        "n": 9,
        "cpu_p50_ns": 10,
        "cpu_p90_ns": 10,
        "cpu_p99_ns": 10,
        "gpu_p50_ns": 10,
        "gpu_p90_ns": 280,
        "gpu_p99_ns": 847,
        "period_p50_ns": 10,
        "period_p90_ns": 280,
        "period_p99_ns": 847,
        "cpu_std_ns": 0,
        "gpu_std_ns": 318,  # 900 / sqrt(8)
        "period_std_ns": 318,
        "left_out": 1,
    }
    with pytest.raises(CannotAnswer, match="no step"):
        iterations(make(ops=[op(0, 1)]), WindowSpec())
    with pytest.raises(BadInput, match="all steps"):
        iterations(make(**tables), WindowSpec(start=0, end=9))


def test_a_stall_between_two_steps_is_in_the_second():
    tables = _steps(9, lag=5)
    for k in range(5, 9):
        for row in (tables["ops"][k], tables["calls"][k], tables["ranges"][k]):
            row["start_ns"] += 500
            row["end_ns"] += 500
    r = iterations(make(**tables), WindowSpec())
    assert r.rows["gpu_ns"].to_list() == [12, *[10] * 4, 510, *[10] * 3]
    assert r.rows["outlier"].to_list()[5]


def test_the_text_of_an_anchor_without_its_numbers():
    tables = _steps(2)
    for k, row in enumerate(tables["ranges"]):
        row["name"] = f"ProfilerStep#{1234567 + k}"
    assert set(iterations(make(**tables), WindowSpec()).rows["anchor"]) == {"ProfilerStep#"}


def test_streams_are_communication_only_if_all_their_kernels_are():
    p = make(
        ops=[op(0, 5), comm(5, 9), comm(0, 4, stream=9), copy(4, 6, stream=9), copy(0, 3, stream=11)],
    )
    rows = {r["stream"]: r for r in streams(p, WindowSpec()).rows.to_dicts()}
    assert {s: r["kind"] for s, r in rows.items()} == {7: "compute", 9: "comm", 11: "copy"}
    assert (rows[7]["n_comp"], rows[7]["n_comm"], rows[7]["comp_ns"], rows[7]["comm_ns"]) == (1, 0, 5, 0)
    assert (rows[9]["n_comm"], rows[9]["comm_ns"], rows[9]["n_copy"]) == (2, 8, 1)


def test_a_step_that_was_asked_for_is_the_one_that_iterations_shows(tmp_path):
    """DualPipeV's trainer marks chunks: `--step` takes the steps that chunks tell, never the capture in silence."""
    simulate_to(Scenario(pp=2, ep=1, layers=4, micro_batches=6, steps=3), tmp_path)
    profile = api.open(tmp_path, cache=False)
    whole, step = profile.breakdown(), profile.breakdown(step=True)
    assert "--step takes one" in next(n for n in whole.notes if n.code == "no-step-range")
    assert {w["label"] for w in step.window} <= set(profile.iterations().rows["label"])
    assert {w["kind"] for w in step.window} == {"step"}
    assert all(b < a / 2 for a, b in zip(whole.rows["window_ns"], step.rows["window_ns"], strict=True))


@pytest.mark.parametrize(
    ("start", "end", "past"),
    [
        (0, 4047, None),  # all there is: the host begins at 0, the last op ends at 1047 and the last call at 4047
        (0, 4060, None),  # the end as a table prints it
        (1000, 8094, "4.047 µs"),
        (-2000, 3047, "2.000 µs"),
        (9000, 9100, "100 ns"),
    ],
)
def test_a_window_past_all_records_is_said(start, end, past):
    tables = _steps()
    tables["calls"].append(call(4000, 4047, 99))
    notes = window(make(**tables), WindowSpec(start=start, end=end)).notes
    said = [str(n) for n in notes if n.code == "window-past-capture"]
    assert [text.partition(" of the window")[0] for text in said] == ([] if past is None else [past])
