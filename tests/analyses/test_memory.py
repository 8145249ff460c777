"""The ledger on real snapshots of an H200, and the command's own manners."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from fake import call, make, op
from stepscope import BadInput, CannotAnswer, api
from stepscope.analyses.memory.comparing import beside
from stepscope.cli.main import cli

DATA = Path(__file__).parents[1] / "data" / "h200" / "memory"
MEASURED = {f["case"]: f for f in json.loads((DATA / "measured.json").read_text("utf-8"))}
SHARED = Path(__file__).parents[3] / "shared" / "traces" / "h200"
#: `train/eager`: 6 layers of 12 h² + 13 h parameters in bf16 (4 matrices, 4 biases, 2 LayerNorms), h = 1024.
SIX_LAYERS = 2 * 6 * (12 * 1024**2 + 13 * 1024)
CASES = ("adamw_6layer", "qwen3_b8_ckpt", "qwen3_oom", "qwen3_b8_expandable", "llama_b4")


def opened(case: str) -> api.Profile:
    return api.open(DATA / f"{case}.snapshot.pickle.gz", cache=False)


def column(result, name: str) -> dict[str, int]:
    return dict(zip(result.rows["part"].to_list(), result.rows[name].to_list(), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_parts_sum_to_the_reserved_bytes(case):
    result = opened(case).memory()
    peak = result.summary["peak"][0]
    assert result.rows["bytes"].sum() == peak["reserved_bytes"]
    assert column(result, "bytes")["outside PyTorch"] is None
    assert sum(r for r in result.rows["share_pct"].to_list() if r is not None) == pytest.approx(100)


def test_weights_gradients_and_states_are_what_the_parameters_say():
    most = column(opened("adamw_6layer").memory(), "most_bytes")
    assert most["weights"] == most["gradients"] == SIX_LAYERS
    assert most["optimizer states"] == 2 * SIX_LAYERS


@pytest.mark.parametrize("case", ["qwen3_b8_ckpt", "qwen3_b8_expandable", "llama_b4"])
def test_a_transformers_model(case):
    measured = MEASURED[case]
    result = opened(case).memory()
    most, size = column(result, "most_bytes"), measured["parameter_bytes"]
    assert most["weights"] == size + measured["buffer_bytes"]
    assert most["gradients"] == size
    assert most["optimizer states"] == 2 * size
    peak = result.summary["peak"][0]
    assert peak["allocated_bytes"] == max(allocated for allocated, _ in measured["peaks"])
    assert peak["reserved_bytes"] <= max(reserved for _, reserved in measured["peaks"])
    assert peak["phase"] == "in the backward pass of step 2"


@pytest.mark.parametrize("case", ["ddp", "fsdp", "late"])
def test_sharded_bucketed_or_recorded_late(case):
    """DDP's buckets are a second copy of the gradients; FSDP's shards and gradients are told from what it gathers.

    `late`: recording began after two steps, so that weights and states are known by their sizes alone.
    """
    size, most = MEASURED[case]["parameter_bytes"], column(opened(case).memory(), "most_bytes")
    assert most["gradients"] == size
    assert most["optimizer states"] == 2 * size
    assert most["weights"] == size + (512 if case != "late" else 0)  # two buffers of 256 bytes
    if case == "ddp":
        assert size <= most["communication"] <= size + 1024
    if case == "fsdp":
        assert 0 < most["communication"] < size  # a layer or two at a time


def test_segments_that_are_returned():
    emptied = opened("emptycache").memory(by="stall").rows
    returned = emptied.filter(emptied["kind"] == "segment returned: empty_cache")
    assert returned.height == MEASURED["emptycache"]["segments_freed"]
    retried = opened("retry").memory(by="stall").rows
    assert MEASURED["retry"]["retries"] == 1
    assert retried.filter(retried["kind"] == "segment returned: CUDA had no more")["bytes"].to_list() == [300 << 20] * 5


def test_what_is_outside_pytorch():
    measured = MEASURED["qwen3_b4"]  # alone on the device
    used = measured["total"] - measured["free"]
    result = opened("llama_b4").memory(used=14854127616 + 800_000_000)
    assert column(result, "bytes")["outside PyTorch"] == 800_000_000
    assert used - measured["reserved"] == pytest.approx(0.8e9, rel=0.01)


def test_out_of_memory():
    result = opened("qwen3_oom").memory()
    assert column(result, "why")["activations"] == "forward, alive when memory ran out"
    line = "transformers/loss/loss_utils.py(59): ForCausalLMLoss"
    said = result.summary["statement"]
    assert said.startswith(f"Memory ran out in the forward pass: {line} asked for 1000 MiB, with 5.316 GiB reserved")
    (why,) = result.summary["out_of_memory"]  # the program had given itself a small part of the GPU
    assert why["own_limit"] and why["lacks_bytes"] == why["asked_bytes"] == 1048576000
    changes = [one["change"] for one in result.summary["would_fit"]]
    assert changes == ["a loss in chunks", "half the tokens of a micro-batch", "recomputation"]
    assert "so the process has a limit of its own" in said
    # Gradients and Adam's states of the same model, trained: 0.295 and 0.591 GiB (qwen3_kineto).
    assert why["to_come_bytes"] == pytest.approx(0.886 * 2**30, rel=0.01)
    stalls = opened("qwen3_oom").memory(by="stall")
    (oom,) = stalls.rows.filter(stalls.rows["kind"] == "out of memory").to_dicts()
    assert oom["bytes"] == 1048576000 and "loss_utils.py" in oom["frame"]
    returned = stalls.rows.filter(stalls.rows["kind"] == "segment returned: CUDA had no more")
    assert returned.height == 2
    assert "memory ran out 1 time" in stalls.summary["statement"]


def test_who_holds_what():
    result = opened("llama_b4").memory(by="frame")
    peak = opened("llama_b4").memory()
    blocks = peak.rows.filter(peak.rows["blocks"].is_not_null())
    assert result.rows["bytes"].sum() == blocks["bytes"].sum()
    held = {(r["part"], r["frame"].split("/")[-1]): r["bytes"] for r in result.rows.to_dicts()}
    tokens, ffn = 4 * 2048, 5632
    assert held["activations", "modeling_llama.py(175): forward"] == 12 * 3 * 2 * tokens * ffn  # gate, up, product


def test_two_snapshots_beside_each_other():
    """The same model with and without checkpoints: what each part holds is what each snapshot says alone."""
    sides = [opened("qwen3_b8_ckpt"), opened("qwen3_b8_expandable")]
    before, after = (column(side.memory(), "bytes") for side in sides)
    result = sides[0].memory(to=sides[1])
    assert column(result, "bytes") == before and column(result, "to_bytes") == after
    changes = column(result, "change_bytes")
    assert changes["activations"] == after["activations"] - before["activations"] > 4 << 30
    assert sum(c for c in changes.values() if c is not None) == (
        result.summary["to_peak"][0]["reserved_bytes"] - result.summary["peak"][0]["reserved_bytes"]
    )
    assert "activations +4.260 GiB" in result.summary["statement"]
    lines = sides[0].memory(to=sides[1], by="frame").rows
    assert lines["change_bytes"].sum() == sum(changes[p] for p in changes if p in set(lines["part"]))
    assert lines["change_bytes"].abs().is_sorted(descending=True)
    same = sides[0].memory(to=sides[0])
    assert set(column(same, "change_bytes").values()) <= {0, None}
    assert same.summary["statement"].startswith("The peak is the same")
    with pytest.raises(BadInput, match="--to compares"):
        sides[0].memory(to=sides[1], by="time")


def test_a_line_that_moved_is_the_same_line():
    table = {"rank": [0], "device": [0], "part": ["activations"], "bytes": [10]}
    here = pl.DataFrame(table | {"frame": ["model.py(12): forward"]})
    there = pl.DataFrame(table | {"frame": ["model.py(19): forward"], "bytes": [30]})
    (row,) = beside(here, there, ["part", "frame"]).to_dicts()
    assert (row["frame"], row["bytes"], row["to_bytes"], row["change_bytes"]) == ("model.py(12): forward", 10, 30, 20)


def test_a_server_holds_keys_and_values():
    """By hand: 32 layers of 8 heads, 128 wide, keys and values of 2 bytes; latent attention keeps 512 + 64."""
    llama = api.analyse(None, "memory", model="llama-3.1-8b", sequence=4096, kv_tokens=131072)
    parts = dict(llama.rows.select("part", "bytes").iter_rows())
    assert parts["KV cache"] == 131072 * 32 * 2 * 8 * 128 * 2
    assert parts["weights"] == 2 * 8_030_261_248 and not {"gradients", "optimizer states"} & set(parts)
    halved = api.analyse(None, "memory", model="llama-3.1-8b", sequence=4096, kv_tokens=131072, tp=2)
    assert dict(halved.rows.select("part", "bytes").iter_rows())["KV cache"] == parts["KV cache"] // 2
    latent = api.analyse(None, "memory", model="deepseek-v3", sequence=4096, kv_tokens=1000)
    assert dict(latent.rows.select("part", "bytes").iter_rows())["KV cache"] == 1000 * 61 * (512 + 64) * 2
    with pytest.raises(BadInput, match="does not train"):
        api.analyse(None, "memory", model="llama-3.1-8b", sequence=4096, kv_tokens=10, recompute=True)


def test_over_time_the_peak_is_kept():
    profile = opened("llama_b4")
    result = profile.memory(by="time")
    peak = profile.memory().summary["peak"][0]
    assert result.rows["allocated_bytes"].max() == peak["allocated_bytes"]
    assert result.rows.height <= 200
    assert result.rows["start_ns"].is_sorted()


def test_the_estimate_beside_the_measured():
    model = "layers=12,width=2048,heads=32,kv_heads=8,dense_width=5632,vocabulary=8192"
    result = opened("llama_b4").memory(model=model, sequence=2048, mbs=4)
    found, estimated = column(result, "bytes"), column(result, "estimate_bytes")
    for part in ("weights", "optimizer states", "activations"):
        assert estimated[part] == pytest.approx(found[part], rel=0.001)
    assert "(+0.0 %)" in result.summary["statement"] or "(-0.0 %)" in result.summary["statement"]
    terms = opened("llama_b4").memory(by="term", model=model, sequence=2048, mbs=4)
    assert terms.rows["bytes"].sum() == result.summary["estimate"]["peak_bytes"]


def test_changes_of_a_measured_ledger():
    rows = opened("llama_b4").memory(by="change", dp=4).rows.to_dicts()
    states = 2 * MEASURED["llama_b4"]["parameter_bytes"]
    assert rows[0]["change"] == "ZeRO 1 over 4 ranks" and rows[0]["saves_bytes"] == states * 3 // 4
    assert [r["at_most"] for r in rows] == [False, False, False, True, True]


def test_the_limit_is_the_largest_group():
    assert "tokens of a micro-batch limit scaling" in opened("llama_b4").memory(gpu="H200").summary["statement"]
    assert "times as many tokens" in opened("llama_b4").memory(gpu="H200").summary["statement"]
    small = api.analyse(None, "memory", model="qwen3-30b-a3b", sequence=128, ep=8, precision="mixed")
    assert "parameters limit scaling" in small.summary["statement"]


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
def test_a_trace_says_the_same_as_the_snapshot():
    """torch.profiler and a snapshot of the same program: gradients and activations agree up to rounding."""
    trace = column(api.open(SHARED / "train/eager.pt.trace.json.gz", cache=False).memory(), "most_bytes")
    snapshot = column(opened("adamw_6layer").memory(), "most_bytes")
    for part in ("gradients", "activations"):
        assert trace[part] == pytest.approx(snapshot[part], rel=0.001)
    assert trace["unknown"] == snapshot["weights"] + snapshot["optimizer states"] + 2 * (32 << 20) + (1 << 20)


def test_stalls_beside_the_timeline():
    """A cudaMalloc of 1 ms while the GPU has nothing to do: the segment has its call and its idle time."""
    ms = 1_000_000
    ops = [op(0, 2 * ms, call=1), op(4 * ms, 5 * ms, call=3)]
    calls = [call(-ms, -ms + 1, 1), call(2 * ms + 100, 3 * ms + 100, None, "cudaMalloc"), call(3 * ms + 200, 4 * ms, 3)]
    memory = [
        {"row": 0, "start_ns": 1, "action": "alloc", "device": 0, "address": 64, "bytes": 512, "tid": 1},
        {
            "row": 1,
            "start_ns": 3 * ms + 150,
            "action": "alloc",
            "device": 0,
            "address": 1 << 20,
            "bytes": 512,
            "tid": 1,
        },
    ]
    memory[0] |= {"allocated_bytes": 512, "reserved_bytes": 2 << 20}
    memory[1] |= {"allocated_bytes": 1024, "reserved_bytes": 4 << 20}
    profile = make(ops=ops, calls=calls, allocations=memory, host=[], ranges=[])
    result = api.analyse(profile, "memory", by="stall")
    (row,) = result.rows.to_dicts()
    assert (row["bytes"], row["call"], row["call_ns"], row["idle_ns"]) == (2 << 20, "cudaMalloc", ms, ms)
    assert "idle for 1 ms" in result.summary["statement"]


def test_it_says_what_is_missing():
    with pytest.raises(CannotAnswer, match="_dump_snapshot"):
        api.analyse(make(ops=[op(0, 1)]), "memory")
    with pytest.raises(BadInput, match="--model"):
        api.analyse(None, "memory")
    with pytest.raises(BadInput, match="--sequence"):
        api.analyse(None, "memory", model="qwen3-30b-a3b")
    with pytest.raises(BadInput, match="needs a record"):
        api.analyse(None, "memory", model="qwen3-30b-a3b", sequence=4096, by="frame")
    with pytest.raises(BadInput, match="--zero 5"):
        api.analyse(None, "memory", model="qwen3-30b-a3b", sequence=4096, zero=5)
    with pytest.raises(BadInput, match="--gpu"):
        opened("llama_b4").memory(gpu="Voodoo 2")


@pytest.mark.parametrize("by", ["part", "change", "term"])
def test_the_command_without_a_profile(by):
    done = CliRunner().invoke(cli, ["memory", "--model", "deepseek-v2-lite", "--sequence", "4096", "--by", by])
    assert done.exit_code == 0, done.output
    assert "billion parameters" in done.output


def test_other_questions_of_a_snapshot():
    path = str(DATA / "qwen3_oom.snapshot.pickle.gz")
    assert CliRunner().invoke(cli, ["info", path, "--no-cache"]).exit_code == 0
    with pytest.raises(CannotAnswer, match="no GPU activity"):
        opened("qwen3_oom").breakdown()


def test_stalls_beside_another_file_of_the_same_run():
    """A snapshot and torch.profiler's trace (cut) of one run: both segments of step 2 have their cudaMalloc.

    What the GPU was idle for them is what `idle` says of the trace: 420.4 µs.
    """
    trace = api.open(DATA / "qwen3_kineto.pt.trace.json.gz", cache=False)
    rows = opened("qwen3_kineto").memory(by="stall", timeline=trace).rows.drop_nulls("call").to_dicts()
    assert [(r["call"], r["bytes"], r["call_ns"], r["idle_ns"]) for r in rows] == [
        ("cudaMalloc", 524288000, 353548, 130938),
        ("cudaMalloc", 524288000, 289504, 289504),
    ]
    causes = trace.idle(whole=True, by="cause").rows
    assert causes.filter(causes["cause"] == "alloc")["total_ns"].to_list() == [130938 + 289504]


def test_a_timeline_of_another_run_is_refused():
    trace = api.open(DATA / "qwen3_kineto.pt.trace.json.gz", cache=False)
    with pytest.raises(CannotAnswer, match="another time"):
        opened("adamw_6layer").memory(by="stall", timeline=trace)


def test_a_snapshot_after_all_was_returned(tmp_path):
    """No segment at the end: what was there is known from the events."""
    import pickle

    frames = [{"name": "f", "filename": "train.py", "line": 1}]
    events = [("segment_alloc", 4096), ("alloc", 1000), ("free_completed", 1000), ("segment_free", 4096)]
    trace = [
        {"action": a, "addr": 8192, "size": n, "stream": 0, "time_us": i, "frames": frames}
        for i, (a, n) in enumerate(events)
    ]
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    result = api.open(path, cache=False).memory()
    assert column(result, "bytes") | {"outside PyTorch": 0} == {
        "temporary": 1000, "cached, free": 0, "fragmentation": 3096, "outside PyTorch": 0,
    }  # fmt: skip
