"""What trainers call their ranges: the presets on texts that the trainers write, files of users, and bad files."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fake import Row, call, comm, make, nvtx, op
from stepscope import api
from stepscope.analyses.pipeline.inference import pieces
from stepscope.errors import BadInput
from stepscope.model.label_rules import LabelRules, default, load, names
from stepscope.model.profile import Profile

#: By preset: a text as the trainer writes it, its stage, and what communication launched in it serves. Texts are those
#: of the files and versions that the preset names.
TEXTS = [
    ("pithtrain", "layer03.stage1_f", "stage1_f", "ep_meta"),
    ("pithtrain", "layer03.stage2_f", "stage2_f", "ep_a2a"),
    ("pithtrain", "layer03.stage2_b", "stage2_b", "ep_a2a"),
    ("pithtrain", "layer03.stage3_w", "stage3_w", "unknown"),
    ("pithtrain", "layer12.stage4_f", "stage4_f", "ep_a2a"),
    ("pithtrain", "layer12.stage5_b", "stage5_b", "unknown"),
    ("pithtrain", "layer03_stage5_f_layer04_stage1_f", "stage1_f", "ep_meta"),
    ("pithtrain", "layer03_stage5_b_layer02_stage1_b", "stage1_b", "ep_meta"),
    ("pithtrain", "pipeline send/recv", "(no stage)", "pp_p2p"),
    ("pithtrain", "layer03.stage5_merged_skip", "(no stage)", "unknown"),
    ("pithtrain", "prolog_f", "(no stage)", "unknown"),
    ("pithtrain", "loss1.backward()", "(no stage)", "unknown"),
    ("pithtrain", "criterion0(*outputs0, *labels0)", "(no stage)", "unknown"),
    ("pithtrain", "weight chunk", "(no stage)", "unknown"),
    ("megatron", "pre_dispatch_computation forward", "pre_dispatch_computation forward", "unknown"),
    ("megatron", "moe_dispatch forward", "moe_dispatch forward", "ep_a2a"),
    ("megatron", "moe_combine backward", "moe_combine backward", "ep_a2a"),
    ("megatron", "mlp wgrad", "mlp wgrad", "unknown"),
    ("megatron", "mtp_post_process backward", "mtp_post_process backward", "unknown"),
    ("megatron", "pre_process forward", "pre_process forward", "unknown"),
    ("megatron", "post_process backward", "post_process backward", "unknown"),
    ("megatron", "delayed_expert_wgrad", "delayed_expert_wgrad", "unknown"),
    ("megatron", "post_attn forward", "post_attn forward", "unknown"),  # of earlier versions
    (
        "megatron",
        "megatron.core.transformer.transformer_layer._forward_attention.self_attention",
        "self_attention",
        "unknown",
    ),
    ("megatron", "megatron.core.transformer.transformer_layer._run_mlp.mlp", "mlp", "unknown"),
    ("megatron", "megatron.core.transformer.mlp.forward.linear_fc1", "(no stage)", "unknown"),
    ("megatron", "layer_0f-layer_3b", "(no stage)", "unknown"),
    (
        "megatron",
        "megatron.core.pipeline_parallel.p2p_communication.send_forward_recv_backward",
        "(no stage)",
        "pp_p2p",
    ),
    ("megatron", "MFSDP decoder.layers.3 backward", "(no stage)", "dp"),
    ("torchtitan", "FSDP::all_gather (layers.3)", "FSDP::all_gather", "dp"),
    ("torchtitan", "FSDP::all_gather_copy_out (layers.3)", "FSDP::all_gather_copy_out", "dp"),
    ("torchtitan", "FSDP::pre_backward (layers.3)", "FSDP::pre_backward", "dp"),
    ("torchtitan", "FSDP::post_backward_reduce (layers.3)", "FSDP::post_backward_reduce", "dp"),
    ("torchtitan", "PP:1UNSHARD", "(no stage)", "dp"),
    ("torchtitan", "PP:1REDUCE_GRAD", "(no stage)", "dp"),
    ("torchtitan", "PP:3SEND_F1", "(no stage)", "pp_p2p"),
    ("torchtitan", "PP:0RECV_B12", "(no stage)", "pp_p2p"),
    ("torchtitan", "PP:0F3", "(no stage)", "unknown"),
    ("deepspeed", "DeepSpeedEngine.forward", "DeepSpeedEngine.forward", "unknown"),
    ("deepspeed", "DeepSpeedEngine.backward", "DeepSpeedEngine.backward", "unknown"),
    ("deepspeed", "DeepSpeedEngine.allreduce_gradients", "DeepSpeedEngine.allreduce_gradients", "dp"),
    *(
        ("deepspeed", text, text, "dp")
        for text in (
            "PartitionedParameterCoordinator.fetch_sub_module",
            "PartitionedParameterCoordinator.__all_gather_params",
            "DeepSpeedZeroOptimizer_Stage3.__reduce_and_partition_ipg_grads",
            "DeepSpeedZeroOptimizer_Stage3.step",
            "DeepSpeedZeRoOffload._register_deepspeed_module.<locals>._post_forward_module_hook",
            "DeepSpeedZeroOptimizer_Stage3.create_reduce_and_remove_grad_hooks.<locals>.wrapper.<locals>"
            ".reduce_partition_and_remove_grads",
            "SuperOffloadOptimizer_Stage3.partition_grads",
            "MiCS_Optimizer.allreduce_mics_shard_grads",
        )
    ),
    *(
        ("deepspeed", text, "(no stage)", "dp")
        for text in (
            "allgather_fn",
            "reduce_scatter_fn",
            "reduce_scatter_coalesced",
            "all_to_all_loco_quant_reduce",
            "AllGatherCoalescedHandle.wait",
            "Init._convert_to_deepspeed_param.<locals>.all_gather_coalesced",
        )
    ),
    ("deepspeed", "free_param", "(no stage)", "unknown"),
    ("transformers", "model.layers.3.self_attn", "self_attn", "unknown"),
    ("transformers", "model.layers.3.mlp.gate_proj", "mlp", "unknown"),
    ("two-stage", "nvtx:pp:stage0:encode k=3", "pp:stage0:encode", "unknown"),
    ("two-stage", "pp:stage1", "pp:stage1", "unknown"),
]


def one(text: str, labels: LabelRules | None = None, **more: Any) -> Profile:
    """A rank with a kernel and an all-reduce that were launched in a range of this text, within `step 0`."""
    tables: dict[str, list[Row]] = {
        "ops": [op(10, 40, call=1), comm(30, 60, call=2)],
        "calls": [call(2, 3, 1), call(4, 5, 2)],
        "ranges": [nvtx(0, 9, "step 0"), nvtx(1, 8, text)],
    }
    profile = make(**tables, **more)
    profile.labels = labels or default()
    return profile


@pytest.mark.parametrize(("preset", "text", "stage", "purpose"), TEXTS)
def test_presets_know_what_the_trainer_writes(preset: str, text: str, stage: str, purpose: str):
    profile = one(text, load(preset))
    assert api.analyse(profile, "overlap").rows["stage"].to_list() == [stage]
    assert api.analyse(profile, "overlap", by="purpose").rows["purpose"].to_list() == [purpose]


@pytest.mark.parametrize(
    ("preset", "text"),
    [
        ("pithtrain", "forward chunk 4 (phase0) backward chunk 1 (phase1)"),
        ("torchtitan", "PP:(0F1;3B0)OVERLAP_F_B"),
    ],
)
def test_presets_know_overlapped_chunks(preset: str, text: str):
    tables = {
        "ops": [op(10, 40, call=1), comm(30, 60, call=2), op(110, 140, call=3)],
        "calls": [call(2, 3, 1), call(4, 5, 2), call(102, 103, 3)],
        "ranges": [nvtx(1, 8, text), nvtx(101, 108, text.replace("1", "2"))],
    }
    profile = make(**tables)
    profile.labels = load(preset)
    assert api.analyse(profile, "window", chunk=True, index=0).rows["label"].to_list() == [text]


@pytest.mark.parametrize(
    ("text", "kind"), [("PP:0F3", "forward"), ("PP:1B0", "backward"), ("PP:1I0", "backward"), ("PP:1W0", "weight")]
)
def test_micro_batches_of_torch_are_known(text: str, kind: str):
    """As `_get_profiler_function_name` of torch/distributed/pipelining/schedules.py writes them."""
    found = [re.match(pattern, text) for pattern in load("torchtitan").micro_batches]
    (match,) = [m for m in found if m]
    kinds = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}
    assert kinds[match["kind"]] == kind and match["mb"] == text[-1] and match["part"] == text[3]


def test_every_preset_has_an_example_and_good_patterns(tmp_path: Path):
    assert set(names()) == {preset for preset, *_ in TEXTS}
    folder = Path(load.__code__.co_filename).parent / "trainers"
    for file in folder.glob("*.toml"):
        copied = tmp_path / file.name  # a user's file is checked, pattern by pattern
        copied.write_text(file.read_text("utf-8"), "utf-8")
        rules = load(copied)
        pl.Series(["x"]).str.contains(rules.any_micro_batch)
    assert load("pithtrain").identity == load(None).identity == "default"
    assert len({load(n).identity for n in names()}) == len(names())


def test_attention_s_ring_is_known_by_the_mesh():
    split = [{"proc": 0, "setup": "rank=0; pp=0/1 dp=0/1 cp=0/2 ep=0/2; mbs=1 seq=8"}]
    rows = api.analyse(one("layer00.stage1_f", processes=split), "overlap", by="purpose").rows
    assert rows["purpose"].to_list() == ["cp_ring"]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_says_first_and_others_hold_where_it_is_silent(tmp_path: Path):
    rules = load(written(tmp_path, "stage = 'moe_[a-z]+'\n[[purpose]]\nstage = 'route'\npurpose = 'ep_meta'\n"))
    assert api.analyse(one("layer 3 moe_route", rules), "overlap").rows["stage"].to_list() == ["moe_route"]
    assert api.analyse(one("layer 3 moe_route", rules), "overlap", by="purpose").rows["purpose"].to_list() == [
        "ep_meta"
    ]
    # PithTrain's stages are none of this file's, but what they serve is still known.
    assert api.analyse(one("layer03.stage2_f", rules), "overlap").rows["stage"].to_list() == ["(no stage)"]
    assert api.analyse(one("layer03.stage2_f", rules), "overlap", by="purpose").rows["purpose"].to_list() == ["ep_a2a"]
    assert rules.chunk == default().chunk and rules.name == str(tmp_path / "mine.toml")
    assert load(written(tmp_path, "extends = 'megatron'\nanchor = '^train'\n")).stage == load("megatron").stage


def test_steps_of_the_trainer_s_own_name(tmp_path: Path):
    """`epoch body` recurs and has no number: nobody would take it for a step, unless told so."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for k in range(3):
        at = 100 * k
        tables["calls"] += [call(at + 1, at + 2, k + 1)]
        tables["ops"] += [op(at + 10, at + 30 + k, call=k + 1)]
        tables["ranges"] += [nvtx(at, at + 9, "epoch body")]
    profile = make(**tables)
    assert [w["kind"] for w in api.analyse(profile, "breakdown").window] == ["capture"]
    profile = make(**tables)
    profile.labels = load(written(tmp_path, "step = '^epoch body$'\n"))
    assert [(w["kind"], w["label"]) for w in api.analyse(profile, "breakdown", index=1).window] == [
        ("step", "epoch body #1")
    ]
    assert api.analyse(profile, "iterations").rows["gpu_ns"].to_list() == [
        30,
        101,
        101,
    ]  # the first begins with its range


def test_an_anchor_is_the_window_unless_the_user_chooses_another(tmp_path: Path):
    rules = load(written(tmp_path, "anchor = '^inner'\n"))
    assert api.analyse(one("inner part", rules), "breakdown").window[0]["label"] == "inner part"
    assert api.analyse(one("inner part", rules), "breakdown", step=True).window[0]["label"] == "step 0"
    assert api.analyse(one("inner part", rules), "breakdown", whole=True).window[0]["kind"] == "capture"


def test_micro_batches_of_other_names(tmp_path: Path):
    own = "[[micro_batch]]\npattern = '^(?P<kind>fwd|bwd) m(?P<mb>\\d+) v(?P<part>\\d+)$'\n"
    patterns = load(written(tmp_path, own)).micro_batches
    assert [(p.kind, p.mb, p.part) for p in pieces("bwd m3 v1", patterns)] == [("b", 3, 1)]
    assert [(p.kind, p.mb, p.part) for p in pieces("Forward 3", patterns)] == [("f", 3, None)]
    wrong = load(written(tmp_path, "[[micro_batch]]\npattern = '^(?P<kind>run) (?P<mb>\\d+)$'\n")).micro_batches
    with pytest.raises(BadInput, match="'run' is not a kind of work"):
        pieces("run 3", wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stage = \n", "line 1"),
        ("# a comment\nstages = 'x'\n", "stages, line 2: not a key; the keys are anchor,"),
        ("stage = 3\n", "stage, line 1: 3 is not a text"),
        ("\nstage = '('\n", "stage, line 2: '(' is not a regular expression"),
        ("anchor = '(?=x)'\n", "anchor, line 1: '(?=x)' is not a regular expression (no look-around"),
        ("extends = 'nemo'\n", "extends, line 1: no preset 'nemo'; presets are deepspeed,"),
        ("steps = 'x'\n", "steps, line 1: not a table"),
        ("[steps]\nnumber = 'x'\n", "number, line 2: not a key of [steps]; its keys are numbered,"),
        ("purpose = 'dp'\n", "purpose, line 1: not a list of rules"),
        (
            "[[purpose]]\nrange = 'x'\npurpose = 'dp'\n[[purpose]]\nrange = 'y'\npurpose = 'zz'\n",
            "purpose, line 6: 'zz'",
        ),
        ("[[purpose]]\npurpose = 'dp'\n", "purpose, line 2: a rule needs either `range` or `stage`"),
        ("[[purpose]]\nrange = 'x'\nfor = 'dp'\n", "for, line 3: not a key of [[purpose]]"),
        ("[[micro_batch]]\npattern = 'x'\n", "pattern, line 2: needs the group (?P<kind>…)"),
        ("[[micro_batch]]\ntext = 'x'\n", "micro_batch, line 1: a rule has one key"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_key_and_line(tmp_path: Path, text: str, said: str):
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as refused:
        load(path)
    assert str(refused.value).startswith(f"--labels {path}: ") and said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="no such preset or file; presets are deepspeed, megatron"):
        load("megatorn")
    with pytest.raises(BadInput, match="cannot read it"):
        load(tmp_path / "none.toml")


def test_rules_travel_to_workers():
    rules = load("megatron")
    assert pickle.loads(pickle.dumps(rules)) == rules and hash(rules) == hash(load("megatron"))
    assert re.search(rules.chunk, "forward chunk 1 (phase0) backward chunk 2 (phase1)")
