"""What GPUs can do: names as traces have them, peak rates that agree with each other, and what products gain."""

from __future__ import annotations

import pytest

from stepscope.findings.detectors.no_tensor_cores import TENSOR_CORES_GAIN, TENSOR_CORES_REACH
from stepscope.model.gpus import PRECISIONS, gpu_of, gpus, has_tensor_cores, is_amd, tensor_core_gain

#: Names from traces, with fp32 and half-precision rates of the data sheets.
NAMES = {
    "NVIDIA A100-SXM4-80GB": (19.5, 312),
    "NVIDIA A100-PG509-200": (19.5, 312),
    "NVIDIA H100 80GB HBM3": (67, 989.5),
    "NVIDIA H100 PCIe": (51, 756.5),
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


@pytest.mark.parametrize("gpu", gpus(), ids=lambda gpu: gpu.name)
def test_rates_agree_with_each_other(gpu):
    """Half precision is twice TF32, fp8 twice half and fp4 twice that or more, on every chip that has both; memory
    feeds 5 to 120 operations a byte in fp32."""
    if gpu.tf32 is not None:
        assert gpu.bf16 == gpu.fp16 == pytest.approx(2 * gpu.tf32, rel=0.03)
        assert gpu.tf32 >= gpu.fp32
    if gpu.vendor == "nvidia" and gpu.bf16 is None:
        assert gpu.tf32 is None  # both came with Ampere
    if gpu.rate("fp8") is not None:
        assert gpu.rate("fp8") == pytest.approx(2 * gpu.half, rel=0.03)
    if gpu.rate("fp4") is not None:
        assert gpu.rate("fp4") >= 1.97 * gpu.rate("fp8")
    if gpu.rate("fp64_tensor") is not None:
        assert gpu.rate("fp64_tensor") >= gpu.rate("fp64")
    assert 5 < 1000 * gpu.fp32 / gpu.gbps < 120
    assert set(gpu.rates) <= set(PRECISIONS) and gpu.source
    assert gpu_of(f"NVIDIA {gpu.name}") is gpu


#: Operations a clock and unit in bf16 (Volta, Turing: fp16) with fp32 accumulation, from the architectures' white
#: papers: A100 2,048 (256 FMAs for each of 4 tensor cores), H100 twice that, B200 twice that again; workstation Ampere,
#: Ada and Blackwell 1,024, GeForce half of it; CDNA 1 to 4: 1,024 (bf16 512), 1,024, 2,048, 4,096.
PER_CLOCK = {
    2048: ("A100 40GB", "A100 80GB", "A30", "MI300A", "MI300X", "MI325X"),
    4096: ("H100", "H200", "H800", "GH200", "H100 PCIe", "MI350X", "MI355X"),
    8192: ("B200", "B300", "GB200", "GB300"),
    1024: ("A40", "A10", "L40S", "L4", "RTX A6000", "RTX 6000 Ada", "RTX PRO 6000 Blackwell", "V100", "T4", "MI210"),
    512: (
        "L40",
        "A10G",
        "RTX 3090",
        "RTX 3080",
        "RTX 4090",
        "RTX 4080",
        "RTX 5090",
        "RTX 5080",
        "RTX 5070",
        "RTX 2080 Ti",
    ),
}


@pytest.mark.parametrize(("per_clock", "name"), [(n, name) for n, names in PER_CLOCK.items() for name in names])
def test_rates_follow_from_units_and_clock(per_clock, name):
    gpu = next(g for g in gpus() if g.name == name)
    # Rates of Blackwell in data centres are rounded, and at a lower clock than the boost of their vector units.
    close = 0.06 if per_clock == 8192 else 0.02
    assert (gpu.fp16 or 0) == pytest.approx(gpu.units * per_clock * gpu.mhz / 1e6, rel=close)


def test_what_products_gain():
    """Measured on an A100: 10240 x 10240 takes 0.11 s in fp32 and 0.016 s in TF32 (PyTorch's notes on CUDA); 60000 x
    60000 24.4 s in fp32, 3.71 s in TF32 and 2.29 s in fp16. TF32 is as measured, half precision gives back as
    much of the time as measured."""
    found = gain("NVIDIA A100-SXM4-80GB")
    for tf32 in (0.016 / 0.11, 3.71 / 24.4):
        assert found.tf32 == pytest.approx(tf32, rel=0.05)
    assert 1 - found.usual == pytest.approx(1 - 2.29 / 24.4, rel=0.03)
    assert found.high < found.usual < found.tf32 < found.low == 0.5
    assert found.high == pytest.approx(19.5 / 312)
    # TF32 is no faster than fp32 on GeForce: half precision is what there is to gain.
    geforce = gain("NVIDIA GeForce RTX 3060")
    assert geforce.usual == pytest.approx(12.7 / 25.5 / 0.85) and geforce.high == pytest.approx(12.7 / 25.5)
    assert geforce.low == geforce.usual  # less than twice as fast
    assert geforce.tf32 is None and "half precision" in found.why["usual"]
    assert (gain(None).low, gain(None).usual) == (1.0, 0.5)
    for gpu in gpus():
        if gpu.tensor_cores:
            some = gain(gpu.name)
            assert 0 < some.high <= some.usual <= some.low <= 1
