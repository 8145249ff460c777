"""What GPUs can do: names as traces have them, peak rates that agree with each other, and what products gain."""

from __future__ import annotations

import pytest

from stepscope.findings.thresholds import TENSOR_CORES_GAIN, TENSOR_CORES_REACH
from stepscope.model.gpus import GPUS, gpu_of, has_tensor_cores, is_amd, tensor_core_gain

#: Names from traces, with fp32 and half-precision rates of the data sheets.
NAMES = {
    "NVIDIA A100-SXM4-80GB": (19.5, 312),
    "NVIDIA A100-PG509-200": (19.5, 312),
    "NVIDIA H100 80GB HBM3": (67, 989.5),
    "NVIDIA H100 PCIe": (51, 756),
    "NVIDIA H200": (67, 989.5),
    "NVIDIA GH200 480GB": (67, 989.5),
    "NVIDIA H20": (44, 148),
    "NVIDIA B200": (75, 2250),
    "NVIDIA L40S": (91.6, 362),
    "NVIDIA L4": (30.3, 121),
    "NVIDIA A40": (37.4, 149.7),
    "NVIDIA GeForce RTX 3060": (12.7, 25.5),
    "NVIDIA GeForce RTX 4090": (82.6, 165.2),
    "NVIDIA RTX 5000 Ada Generation Laptop GPU": (42.6, 170.4),
    "Tesla V100-DGXS-32GB": (15.7, 125),
    "Tesla V100-SXM2-16GB": (15.7, 125),
    "Tesla T4": (8.1, 65),
    "AMD Instinct MI300X VF": (163.4, 1307.4),
    "AMD Instinct MI250X": (23.9, 191.5),
}


def gain(name):
    return tensor_core_gain(name, TENSOR_CORES_GAIN.value, TENSOR_CORES_REACH.share)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_traces(name):
    gpu = gpu_of(name)
    assert gpu is not None and (gpu.fp32, gpu.half) == NAMES[name]
    assert has_tensor_cores(name) and is_amd(name) == name.startswith("AMD")


def test_a_name_that_says_nothing():
    assert gpu_of(None) is None and gpu_of("GPU") is None
    assert has_tensor_cores("GPU") is None and has_tensor_cores(None) is None
    for old in ("Tesla P100-PCIE-16GB", "Quadro GP100", "Tesla K80", "NVIDIA GeForce GTX 1080 Ti", "Quadro P5000"):
        assert has_tensor_cores(old) is False and gain(old) is None
    assert gpu_of("NVIDIA H20") is not gpu_of("NVIDIA H200")


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.pattern)
def test_rates_agree_with_each_other(gpu):
    """Half precision is twice TF32 on every chip that has both; memory feeds 2 to 60 operations a byte in fp32."""
    if gpu.tf32 is not None:
        assert gpu.bf16 == gpu.fp16 == pytest.approx(2 * gpu.tf32, rel=0.03)
        assert gpu.tf32 >= gpu.fp32
    if gpu.vendor == "nvidia" and gpu.bf16 is None:
        assert gpu.tf32 is None  # both came with Ampere
    assert 5 < 1000 * gpu.fp32 / gpu.gbps < 120
    assert gpu_of(gpu.pattern.replace(r"\b", "").split("|")[0].split("[")[0] or None) is not None or "[" in gpu.pattern


def test_what_products_gain():
    """Measured on an A100: 10240 x 10240 takes 0.11 s in fp32 and 0.016 s in TF32 (PyTorch's notes on CUDA); 60000 x
    60000 24.4 s in fp32, 3.71 s in TF32 and 2.29 s in fp16. All lie within the interval, TF32 near the usual."""
    found = gain("NVIDIA A100-SXM4-80GB")
    for tf32 in (0.016 / 0.11, 3.71 / 24.4):
        assert found.usual == pytest.approx(tf32, rel=0.05)
    assert found.high < 2.29 / 24.4 < found.usual < found.low == 0.5
    assert found.high == pytest.approx(19.5 / 312)
    # TF32 is no faster than fp32 on GeForce: half precision is what there is to gain.
    geforce = gain("NVIDIA GeForce RTX 3060")
    assert geforce.usual == pytest.approx(12.7 / 25.5 / 0.85) and geforce.high == pytest.approx(12.7 / 25.5)
    assert geforce.low == geforce.usual  # less than twice as fast
    assert "half precision" in geforce.why["usual"] and "TF32" in found.why["usual"]
    assert (gain(None).low, gain(None).usual) == (1.0, 0.5)
    for gpu in GPUS:
        if gpu.tensor_cores:
            name = gpu.pattern.replace(r"\b", "").replace("G?", "").replace("[23]", "2").replace("[18]", "1")
            some = gain(name.split("|")[0].replace(".*", " ").replace("[15]", "1"))
            assert 0 < some.high <= some.usual <= some.low <= 1
