"""The model that is trained: the kernels of each stage of a layer, and the bytes that it communicates."""

from __future__ import annotations

from stepscope.simulate.job import kernels as k
from stepscope.simulate.job.blocks import Block, Names, stretch
from stepscope.simulate.job.scenario import Scenario

_HIDDEN, _TOP_K, _BF16 = 2048, 4, 2
_TOKENS = 4096  # for which the durations below hold

#: Kernels (name, µs) of each stage of a layer, and of the parts around the layers.
STAGES: dict[str, list[tuple[str, float]]] = {
    "attention_f": [
        (k.RMS_NORM, 28), (k.GEMM_QKV, 155), (k.ROPE, 24), (k.FLASH_FWD, 330), (k.GEMM_OUT, 120), (k.ADD, 21),
    ],
    "router_f": [(k.RMS_NORM, 28), (k.GEMM_ROUTER, 26), (k.SOFTMAX, 12), (k.TOPK, 22)],
    "experts_f": [(k.PERMUTE, 48), (k.GROUPED_GEMM, 330), (k.SILU, 46), (k.GROUPED_GEMM, 190), (k.PERMUTE, 40)],
    # Shared experts, one half beside each all-to-all (DualPipeV's model has none: another micro-batch runs there).
    "shared1_f": [(k.GEMM_QKV, 165), (k.SILU, 24)],
    "shared2_f": [(k.GEMM_OUT, 185)],
    "shared2_b": [(k.GEMM_DGRAD, 185), (k.GEMM_WGRAD, 185)],
    "shared1_b": [(k.SILU, 30), (k.GEMM_DGRAD, 165), (k.GEMM_WGRAD, 165)],
    "combine_f": [(k.MUL, 34), (k.ADD, 22)],
    "combine_b": [(k.MUL, 38), (k.PERMUTE, 30)],
    "experts_b": [(k.PERMUTE, 46), (k.GROUPED_GEMM, 200), (k.SILU, 62), (k.GROUPED_GEMM, 340), (k.PERMUTE, 44)],
    "experts_w": [(k.GROUPED_GEMM, 210), (k.GROUPED_GEMM, 345)],
    "router_b": [(k.SOFTMAX, 16), (k.GEMM_ROUTER, 30), (k.RMS_NORM_BWD, 44)],
    "attention_b": [
        (k.GEMM_DGRAD, 125), (k.GEMM_WGRAD, 125), (k.FLASH_BWD, 720), (k.ROPE, 30),
        (k.GEMM_DGRAD, 160), (k.GEMM_WGRAD, 160), (k.RMS_NORM_BWD, 46), (k.ADD, 22),
    ],
    "embedding_f": [(k.EMBEDDING, 12)],
    "embedding_b": [(k.EMBEDDING_BWD, 20)],
    # A small vocabulary: the first and last stages are to take hardly longer than the others.
    "head_f": [(k.RMS_NORM, 12), (k.GEMM_QKV, 40)],
    "loss_f": [(k.CROSS_ENTROPY, 20), (k.REDUCE, 6)],
    "loss_b": [(k.CROSS_ENTROPY_BWD, 22), (k.GEMM_DGRAD, 40), (k.GEMM_WGRAD, 40), (k.RMS_NORM_BWD, 12)],
    "norm": [(k.REDUCE, 34), (k.REDUCE, 12)],
    "optimizer": [(k.SCALE, 60), (k.ADAMW, 210)],
}  # fmt: skip


def layer_parts(s: Scenario) -> tuple[str, ...]:
    """Prefixes of the stages that every layer has."""
    parts = ("attention", "router", "experts", "combine")
    return parts if s.schedule == "dualpipev" else (*parts, "shared1", "shared2")


class Model:
    """Blocks by name, for one rank (a rank with the tiny-kernels fault has its own)."""

    def __init__(self, s: Scenario, names: Names, scale: float, split: int) -> None:
        tokens = s.seq * s.mbs / _TOKENS
        # Attention over a ring of ranks goes piece by piece.
        self._blocks = {name: Block(names, stretch(rows, tokens, scale, split)) for name, rows in STAGES.items()}
        self.ring = Block(names, stretch([(k.FLASH_FWD, 330 / s.cp)], tokens, scale, split))
        self.ring_back = Block(names, stretch([(k.FLASH_BWD, 720 / s.cp)], tokens, scale, split))
        activations = int(s.seq * s.mbs * _HIDDEN * _BF16 * scale)
        #: between pipeline stages, and per tensor-parallel reduction
        self.activation_bytes = activations
        #: keys and values, passed around the ring
        self.ring_bytes = activations
        #: to each peer, in a dispatch or combine
        self.expert_bytes = activations * _TOP_K // s.ep
        self.meta_bytes = 1024
        #: dense gradients of a layer, and of one rank's shard of its parameters
        self.layer_bytes = int(24e6 * scale)
        self.batch_bytes = s.seq * s.mbs * 8 * 2

    def __getitem__(self, name: str) -> Block:
        return self._blocks[name]


def kernels_per_stage() -> dict[str, int]:
    """Kernels of each block at scale 1."""
    return {name: len(rows) for name, rows in STAGES.items()}
