"""MFU and HFU: by hand, of declared models, refusals, and real traces whose FLOPs are known otherwise."""

from __future__ import annotations

import json

import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput, CannotAnswer

BF16 = '["c10::BFloat16", "c10::BFloat16"]'
US = 1000


def torch_op(start, end, name, shapes=None, types=BF16, tid=1, **more):
    row = {"start_ns": start, "end_ns": end, "name": name, "kind": "cpu_op", "tid": tid}
    return row | {"shapes": None if shapes is None else json.dumps(shapes), "types": types} | more


def profile(host, ops, calls, gpu="NVIDIA H200", **tables):
    return make(processes=[{"proc": 0, "gpu": gpu}], host=host, ops=ops, calls=calls, **tables)


PRODUCT = [[1000, 1000], [1000, 1000]]  # 2 GFLOP


def trained(types=BF16, gpu="NVIDIA H200"):
    """100 µs: a product forward, two backward and one that runs again; and 40 µs of compute that is no product."""
    host = [
        torch_op(0, 10, "aten::linear", [[1000, 1000], [1000, 1000]], types, sequence=1, fwd_tid=0),
        torch_op(2, 8, "aten::mm", PRODUCT, types, sequence=1, fwd_tid=0),
        torch_op(20, 60, "autograd::engine::evaluate_function: MmBackward0", tid=2, sequence=1, fwd_tid=1),
        torch_op(21, 30, "MmBackward0", tid=2, sequence=1, fwd_tid=1),
        torch_op(22, 24, "aten::mm", PRODUCT, types, tid=2),
        torch_op(25, 28, "aten::mm", PRODUCT, types, tid=2),
        torch_op(40, 50, "aten::linear", [[1000, 1000], [1000, 1000]], types, tid=2, sequence=9, fwd_tid=0),
        torch_op(42, 48, "aten::mm", PRODUCT, types, tid=2, sequence=9, fwd_tid=0),
    ]
    calls = [call(3, 4, 1), call(23, 23, 2, tid=2), call(26, 27, 3, tid=2), call(43, 44, 4, tid=2), call(70, 71, 5)]
    at = [100, 110, 120, 130, 160]
    ops = [op(t * US, (t + 10) * US, "nvjet_tst_128x256", call=n) for n, t in enumerate(at[:4], 1)]
    ops.append(op(160 * US, 200 * US, "vectorized_elementwise_kernel", call=5))
    return profile(host, ops, calls, gpu)


def test_by_hand():
    """Three products of 2 GFLOP in 100 µs are 60 TFLOP/s, of 989.5; with the one that runs again, 80."""
    result = api.analyse(trained(), "mfu", whole=True)
    (row,) = result.rows.to_dicts()
    assert (row["window_ns"], row["model_flops"], row["hardware_flops"]) == (100 * US, 6_000_000_000, 8_000_000_000)
    assert row["recomputed_flops"] == 2_000_000_000 and row["achieved_tflops"] == pytest.approx(60)
    assert row["mfu_pct"] == pytest.approx(100 * 60 / 989.5) and row["hfu_pct"] == pytest.approx(100 * 80 / 989.5)
    assert row["peak_tflops"] == pytest.approx(989.5)
    assert (row["counted_pct"], row["uncounted_pct"]) == (50.0, 0.0)
    codes = {n.code for n in result.notes}
    assert {"mfu-formula", "mfu-peak", "mfu-recomputed"} <= codes
    assert not {"mfu-convention", "mfu-uncounted", "mfu-beyond-twice-forward", "mfu-above-peak"} & codes
    assert "6.1 %" in result.summary["statement"]


def test_terms():
    rows = api.analyse(trained(), "mfu", whole=True, by="term").rows
    shown = rows.select("phase", "op", "n", "each_flops", "model_flops", "hardware_flops", "gpu_ns").rows()
    assert sorted(shown) == [
        ("backward", "aten::mm", 2, 2 * 10**9, 4 * 10**9, 4 * 10**9, 20 * US),
        ("forward", "aten::mm", 1, 2 * 10**9, 2 * 10**9, 2 * 10**9, 10 * US),
        ("recomputed", "aten::mm", 1, 2 * 10**9, 0, 2 * 10**9, 10 * US),
    ]
    assert rows["share_pct"].sum() == pytest.approx(100)
    assert rows["peak_pct"].to_list() == pytest.approx([100 * 200 / 989.5] * 3)


def test_stages():
    """A stage is measured by the time in which it computes."""
    host = [torch_op(2, 8, "aten::mm", PRODUCT), torch_op(12, 18, "aten::mm", PRODUCT)]
    calls = [call(3, 4, 1), call(13, 14, 2)]
    ops = [op(100 * US, 110 * US, call=1), op(150 * US, 154 * US, call=2)]
    ranges = [nvtx(0, 10, "layer0.stage1_f"), nvtx(11, 20, "layer0.stage3_f")]
    rows = api.analyse(profile(host, ops, calls, ranges=ranges), "mfu", whole=True, by="stage").rows
    assert rows.select("stage", "busy_ns", "model_flops").rows() == [
        ("stage1_f", 10 * US, 2 * 10**9),
        ("stage3_f", 4 * US, 2 * 10**9),
    ]
    assert rows["mfu_pct"].to_list() == pytest.approx([100 * 200 / 989.5, 100 * 500 / 989.5])
    named = [nvtx(0, 10, "attention"), nvtx(11, 20, "experts")]
    rows = api.analyse(profile(host, ops, calls, ranges=named), "mfu", whole=True, by="stage").rows
    assert rows["stage"].to_list() == ["attention", "experts"]


def test_what_has_no_count_is_said():
    """A product of a library that records no shapes, and one that does: the share is a lower bound."""
    host = [torch_op(2, 8, "aten::mm", PRODUCT), torch_op(12, 18, "aten::mm")]
    calls = [call(3, 4, 1), call(13, 14, 2), call(30, 31, 3)]
    ops = [
        op(100 * US, 110 * US, "nvjet_a", call=1),
        op(110 * US, 120 * US, "nvjet_b", call=2),
        op(120 * US, 140 * US, "cutlass_c", call=3),
    ]
    result = api.analyse(profile(host, ops, calls), "mfu", whole=True)
    assert result.rows.select("counted_pct", "uncounted_pct").row(0) == (25.0, 75.0)
    notes = {n.code: str(n) for n in result.notes}
    assert "30 µs" in notes["mfu-uncounted"] and "cutlass_c" in notes["mfu-uncounted"]
    assert "shapes were not recorded" in notes["mfu-op-unclear"]
    assert "at least" in result.summary["statement"] and "75 %" in result.summary["statement"]


def test_products_of_an_optimizer():
    host = [torch_op(2, 8, "aten::mm", PRODUCT), torch_op(12, 18, "aten::mm", PRODUCT)]
    calls = [call(3, 4, 1), call(13, 14, 2)]
    ranges = [nvtx(0, 30, "step 0"), nvtx(10, 20, "Optimizer.step#Muon.step")]
    ops = [op(0, 10 * US, call=1), op(10 * US, 20 * US, call=2)]
    result = api.analyse(profile(host, ops, calls, ranges=ranges), "mfu", whole=True)
    (row,) = result.rows.to_dicts()
    assert (row["model_flops"], row["hardware_flops"], row["recomputed_flops"]) == (2 * 10**9, 4 * 10**9, 0)
    (said,) = [str(n) for n in result.notes if n.code == "mfu-optimizer"]
    assert "2.000 GFLOP (50 %" in said


def test_more_than_twice_forward():
    """One product forward and three backward in a compiled graph: one of them must have been computed before."""
    host = [
        torch_op(0, 10, "aten::mm", PRODUCT),
        torch_op(20, 60, "CompiledFunctionBackward", tid=2, sequence=1, fwd_tid=1),
        *(torch_op(22 + 10 * k, 28 + 10 * k, "aten::mm", PRODUCT, tid=2) for k in range(3)),
    ]
    calls = [call(3, 4, 1), *(call(23 + 10 * k, 24 + 10 * k, k + 2, tid=2) for k in range(3))]
    ops = [op(100 * US + 20 * US * k, 120 * US + 20 * US * k, "nvjet", call=k + 1) for k in range(4)]
    result = api.analyse(profile(host, ops, calls), "mfu", whole=True)
    (said,) = [str(n) for n in result.notes if n.code == "mfu-beyond-twice-forward"]
    share = result.rows["mfu_pct"][0]
    assert "2.000 GFLOP more" in said and f"{share * 3 / 4:.1f} %, not {share:.1f} %" in said


def test_shapes_that_cannot_be():
    host = [torch_op(2, 8, "aten::mm", PRODUCT), torch_op(12, 18, "aten::mm", [[10**9, 10**9], [10**9, 10**9]])]
    calls = [call(3, 4, 1), call(13, 14, 2)]
    result = api.analyse(
        profile(host, [op(0, 10 * US, call=1), op(10 * US, 20 * US, call=2)], calls), "mfu", whole=True
    )
    assert result.rows["model_flops"].to_list() == [2 * 10**9]
    assert any("its shapes cannot be" in n for n in result.notes)


def test_precisions_are_measured_each_by_its_own_peak():
    """fp32 without tensor cores and bf16: 67 and 989.5 TFLOP/s; TF32 where the kernel says so."""
    floats = '["float", "float"]'
    host = [torch_op(2, 8, "aten::mm", PRODUCT), torch_op(12, 18, "aten::mm", PRODUCT, floats)]
    calls = [call(3, 4, 1), call(13, 14, 2)]

    def peak_ns(kernel):
        ops = [op(100 * US, 110 * US, "nvjet_a", call=1), op(110 * US, 200 * US, kernel, call=2)]
        (row,) = api.analyse(profile(host, ops, calls), "mfu", whole=True).rows.to_dicts()
        return row["mfu_pct"] / 100 * row["window_ns"]

    assert peak_ns("ampere_sgemm_128x64_tn") == pytest.approx(2e9 / 989.5e3 + 2e9 / 67e3)
    assert peak_ns("cutlass_tensorop_s1688gemm") == pytest.approx(2e9 / 989.5e3 + 2e9 / 494.5e3)


def test_conventions():
    """Causal attention in full: 4·b·h·s²·d. Its half, as Megatron-LM counts; and the other is always said."""
    shapes = [[2, 8, 512, 64]] * 3
    values = json.dumps(["", "", "", "0.", "True"])
    name = "aten::_scaled_dot_product_flash_attention"
    host = [torch_op(2, 8, name, shapes, '["c10::BFloat16"]', inputs=values)]
    made = profile(host, [op(100 * US, 130 * US, "flash_fwd_kernel", call=1)], [call(3, 4, 1)])
    full = 4 * 2 * 8 * 512 * 512 * 64
    found = {c: api.analyse(made, "mfu", whole=True, attention=c) for c in ("full", "causal")}
    assert [found[c].rows["model_flops"][0] for c in ("full", "causal")] == [full, full // 2]
    (said,) = [str(n) for n in found["full"].notes if n.code == "mfu-convention"]
    assert f"{found['causal'].rows['mfu_pct'][0]:.1f} %" in said and "--attention causal" in said
    (said,) = [str(n) for n in found["causal"].notes if n.code == "mfu-convention"]
    assert f"{found['full'].rows['mfu_pct'][0]:.1f} %" in said and "--attention full" in said


def test_a_window_that_cuts_a_kernel():
    """Of a kernel that is half inside, half of the FLOPs are."""
    rows = api.analyse(trained(), "mfu", start=105 * US, end=120 * US).rows
    assert rows["model_flops"].to_list() == [3 * 10**9] and rows["window_ns"].to_list() == [15 * US]


# -- declared models ---------------------------------------------------------------------------------------------------

SMALL = "layers=2,width=64,heads=4,dense_width=128,gated=false,vocabulary=1000"


def test_a_declared_model():
    """A token of the forward pass: 4 products of 64 x 64 and two of 64 x 128 a layer, 64 x 1,000, and attention over 32
    tokens; three times that in training. Two ranks share 64 tokens."""
    ops = [op(0, 1000 * US, call=1), op(0, 1000 * US, call=1, proc=1)]
    calls = [call(0, 1, 1), call(0, 1, 1) | {"proc": 1}]
    made = make(processes=[{"proc": p, "gpu": "NVIDIA H200"} for p in (0, 1)], ops=ops, calls=calls)
    weights = 2 * (2 * (4 * 64 * 64 + 2 * 64 * 128) + 64 * 1000)
    scores = 2 * 2 * 4 * 32 * (16 + 16)
    options = {"model": SMALL, "tokens": 64, "sequence": 32, "whole": True}
    rows = api.analyse(made, "mfu", **options).rows
    assert rows["model_flops"].to_list() == [3 * 32 * (weights + scores)] * 2
    assert rows["hardware_flops"].to_list() == [None, None]
    assert rows["mfu_pct"][0] == pytest.approx(100 * 3 * 32 * (weights + scores) / 989.5e12 / 1e-3)
    rows = api.analyse(made, "mfu", **options, inference=True, attention="causal").rows
    assert rows["model_flops"].to_list() == [32 * (weights + scores // 2)] * 2
    terms = api.analyse(made, "mfu", **options, by="term").rows
    assert terms.filter(rank=0)["model_flops"].sum() == 3 * 32 * (weights + scores)
    with pytest.raises(CannotAnswer, match="a declared model has no stages"):
        api.analyse(made, "mfu", **options, by="stage")


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_nothing_is_faster_than_the_peak():
    with pytest.raises(CannotAnswer, match=r"would be 133 %.*aten::mm \[\[1000, 1000\].*200 TFLOP/s.*60") as refused:
        api.analyse(trained(), "mfu", whole=True, peak=60)
    assert "--peak" in str(refused.value)
    with pytest.raises(CannotAnswer, match="10,000,000 tokens of the model as given on 1 rank"):
        api.analyse(trained(), "mfu", whole=True, model=SMALL, tokens=10_000_000, sequence=32)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"tokens": 5}, BadInput, "give --model"),
        ({"model": SMALL}, BadInput, "give --tokens"),
        ({"model": SMALL, "tokens": 5}, BadInput, "give --sequence"),
        ({"gpu": "Radeon 9700"}, BadInput, "not known"),
        ({"peak": -1.0}, BadInput, "not a rate"),
    ],
)
def test_options_that_do_not_fit(options, error, said):
    with pytest.raises(error, match=said):
        api.analyse(trained(), "mfu", whole=True, **options)


def test_what_is_missing():
    bare = profile([], [op(0, 10 * US, call=1)], [call(0, 1, 1)])
    with pytest.raises(CannotAnswer, match="no shapes of torch ops") as refused:
        api.analyse(bare, "mfu", whole=True)
    assert "--with shapes" in str(refused.value) and "--model" in str(refused.value)
    with pytest.raises(CannotAnswer, match="nothing is known of the peak of GPU"):
        api.analyse(trained(gpu="GPU"), "mfu", whole=True)
    row = api.analyse(trained(gpu="GPU"), "mfu", whole=True, peak=1000.0).rows
    assert row["mfu_pct"].to_list() == pytest.approx([6.0])


# -- real traces -------------------------------------------------------------------------------------------------------

#: Six layers of width 1,024: 12 x 1,024² weights each, 4,096 tokens in sequences of 512, no output matrix.
WEIGHTS = 6 * 2 * 12 * 1024 * 1024 * 4096
SCORES = 6 * 4 * 8 * 16 * 512 * 512 * 64


@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_a_transformer_by_hand(shared, name):
    opened = api.open(shared / "traces" / "h200" / "train" / f"{name}.pt.trace.json.gz", cache=False)
    for row in opened.mfu(by="step").rows.to_dicts():
        assert row["model_flops"] == 3 * (WEIGHTS + SCORES)
        assert row["hardware_flops"] - row["model_flops"] == SCORES // 2  # backward makes the scores anew
        assert row["uncounted_pct"] == 0
    causal = opened.mfu(attention="causal").rows
    assert causal["model_flops"].to_list() == [3 * WEIGHTS + 3 * SCORES // 2]


def test_the_same_transformer_declared(shared):
    """The nsys capture of the same program has no shapes: declared, it is the same number."""
    opened = api.open(shared / "traces" / "h200" / "train" / "eager.sqlite", cache=False)
    model = "layers=6,width=1024,heads=16,dense_width=4096,gated=false"
    row = opened.mfu(model=model, tokens=4096, sequence=512).rows
    assert row["model_flops"].to_list() == [3 * (WEIGHTS + SCORES)]


def test_shapes_in_nvtx(shared):
    """Qwen3 of 8 layers and width 512 under transformers' Trainer, two micro-batches of 8 x 2,048 tokens: what nsys's
    ranges say is what the model's shape says, but for two products of 32 by 2,048 that make the angles of positions."""
    opened = api.open(shared / "traces" / "h200" / "hf" / "hf1_rich.sqlite", cache=False)
    model = "layers=8,width=512,heads=8,kv_heads=4,head_width=64,dense_width=2048,vocabulary=8192"
    counted = opened.mfu().rows["model_flops"][0]
    declared = opened.mfu(model=model, tokens=2 * 8 * 2048, sequence=2048).rows["model_flops"][0]
    assert counted == declared + 2 * 2 * 32 * 2048


def test_measured_kernels_stand_in_for_shapes(shared):
    """Nsight Compute measured the forward pass of the same program: its products have the FLOPs of their shapes, its
    attention those of 10 of 16 tiles of 128 x 128, which is what a causal mask leaves of 512 x 512."""
    h200 = shared / "traces" / "h200"
    opened = api.open(h200 / "train" / "eager.sqlite", h200 / "ncu" / "ncu_full_raw.csv", cache=False)
    result = opened.mfu(by="term")
    assert set(result.rows["phase"]) == {"measured"}
    attention = result.rows["op"].str.contains("sdpa")
    flops = result.rows["hardware_flops"]
    assert flops.filter(~attention).sum() == WEIGHTS and flops.filter(attention).sum() == SCORES * 10 // 16
    (row,) = opened.mfu().rows.to_dicts()
    assert row["mfu_pct"] is None and row["hfu_pct"] > 0 and row["model_flops"] is None
    assert row["uncounted_pct"] > 30  # the backward pass was not measured
    declared = opened.mfu(model="layers=6,width=1024,heads=16,dense_width=4096", tokens=64, sequence=64).rows
    assert declared["mfu_pct"][0] > 0 and declared["hardware_flops"][0] == row["hardware_flops"]


#: TraceLens 171dd747, its own reports on these traces (tests/traces of AMD-AGI/TraceLens): GFLOPs summed over calls.
TRACELENS_QWEN = {"aten::mm": 48 * 51.581550592 + 24 * 51.581550592 + 24 * 18.756927488, "attention": 24 * 10.239377408}
TRACELENS_RESNET = {"forward": 108.81368064, "recomputed": 101.73284352}


@pytest.mark.parametrize("name", ["h100_qwen", "mi300x_qwen"])
def test_inference_as_tracelens_counts_it(shared, name):
    """Attention as it does, half. It adds the bias to `addmm`, which we do not."""
    opened = api.open(shared / "traces" / "public" / f"{name}.json.gz", cache=False)
    terms = opened.mfu(by="term", attention="causal").rows
    sums = {o: terms.filter(op=o)["model_flops"].sum() / 1e9 for o in set(terms["op"])}
    assert sums["aten::mm"] == pytest.approx(TRACELENS_QWEN["aten::mm"], rel=1e-12)
    assert sums["aten::_flash_attention_forward"] == pytest.approx(TRACELENS_QWEN["attention"], rel=1e-12)
    assert sums["aten::addmm"] == pytest.approx(72 * (18.766086144 - 8944 * 1024 / 1e9), rel=1e-9)


def test_recomputation_as_tracelens_tells_it(shared):
    """ResNet-18 with checkpoints, three steps. TraceLens counts a gradient of the image, which is not computed."""
    opened = api.open(shared / "traces" / "public" / "tl_mi300_resnet_ckpt.json.gz", cache=False)
    terms = opened.mfu(by="term", whole=True).rows
    of_convolutions = terms.filter(terms["op"].str.contains("convolution"))
    for phase, gflops in TRACELENS_RESNET.items():
        assert of_convolutions.filter(phase=phase)["hardware_flops"].sum() / 1e9 == pytest.approx(gflops, rel=1e-9)
    first = 3 * 2 * 10 * 112 * 112 * 64 * 3 * 7 * 7 / 1e9
    backward = of_convolutions.filter(phase="backward")["hardware_flops"].sum() / 1e9
    assert backward == pytest.approx(217.62736128 - first, rel=1e-9)


def test_an_optimizer_that_multiplies(shared):
    """Shampoo, on a matrix of 512 x 8,192: two products for its statistics, and one with each of their roots."""
    opened = api.open(shared / "traces" / "public" / "world128.rank0.json.gz", cache=False)
    terms = opened.mfu(by="term", gpu="A100").rows.filter(phase="optimizer")
    a, b = 512, 8192
    assert terms["hardware_flops"].sum() == 2 * (a * b * a + b * a * b + b * a * a + a * b * b)
    assert terms["model_flops"].sum() == 0


def test_without_shapes_it_exits_3(shared, capsys):
    trace = shared / "traces" / "h200" / "hf" / "hf1_healthy.rank0.pt.trace.json.gz"
    assert run(["mfu", str(trace), "--no-cache"]) == 3
    assert "record_shapes=True" in capsys.readouterr().err
