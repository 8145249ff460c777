"""What a stack says of an allocation: patterns of frames, as data, each with its reason.

A frame is `file(line): function`, the file without the place where packages are installed; a native one is its symbol,
and one of Kineto's is the name of a host op. A stack has a trait where any of its frames matches. Patterns are those of
Polars (no look-around).
"""

from __future__ import annotations

from dataclasses import dataclass

#: The parts of the ledger that blocks belong to, in its order.
WEIGHTS, GRADIENTS, STATES, ACTIVATIONS, TEMPORARY, COMMUNICATION, KV_CACHE, UNKNOWN = range(8)
PARTS = (
    "weights",
    "gradients",
    "optimizer states",
    "activations",
    "temporary",
    "communication",
    "KV cache",
    "unknown",
)


@dataclass(frozen=True)
class Trait:
    """One thing that a stack can say."""

    name: str
    pattern: str
    why: str
    #: Also where the innermost Python frame matches this: a wrapper around a model is in the stack of all that it runs.
    innermost: str = ""


OPTIMIZER, BACKWARD, RECOMPUTE, COMM, KV, MODULE, WORKSPACE, LOSS = range(8)
TRAITS = (
    Trait(
        "optimizer",
        r"^torch/optim/|^Optimizer\.step#"
        r"|^(apex|deepspeed|megatron|transformer_engine|bitsandbytes|torchao)/.*(optim|adam|Adam)",
        "an optimizer's code: torch.optim, or the file of another's that is named so",
    ),
    Trait(
        "backward",
        r"^torch::autograd::Engine::|^torch::autograd::.*(Backward\d*|AccumulateGrad)::apply|^autograd::engine::"
        r"|\.py\(\d+\): backward$|^torch/distributed/fsdp/.*: _?(pre|post)_backward",
        "the autograd engine runs a backward node, or a Python function that is one",
    ),
    Trait(
        "recompute",
        r"^torch/utils/checkpoint\.py\(\d+\): (unpack_hook|recompute_fn|_recompute\w*|backward)$"
        r"|^CheckpointFunctionBackward|^(megatron|deepspeed)/.*(checkpoint|random)\w*\.py\(\d+\): backward$",
        "a checkpoint runs its forward again",
    ),
    Trait(
        "communication",
        r"^c10d::|^nccl:",
        "DDP's or FSDP's buckets, gathered weights, or a process group's own buffers",
        innermost=r"^torch/nn/parallel/distributed\.py|^torch/distributed/"
        r"|^(deepspeed|megatron|deep_ep)/.*(reduce|gather|bucket|buffer|comm)",
    ),
    Trait(
        "KV cache",
        r"^transformers/cache_utils\.py|^(vllm|sglang|tensorrt_llm)/.*(kv_cache|memory_pool|cache_engine|worker/cache)"
        r"|: \w*(allocate_kv_cache|init_kv_cache|kv_cache_tensors)\w*$",
        "the cache of keys and values of a server, or of transformers",
    ),
    Trait(
        "module",
        r"^torch/nn/modules/module\.py\(\d+\): (_apply|to|cuda|to_empty|register_parameter)$|^torch/nn/parameter\.py"
        r"|^torch/nn/init\.py|^torch/nn/modules/\w+\.py\(\d+\): (__init__|reset_parameters)$"
        r"|^transformers/(modeling_utils|core_model_loading|initialization)\.py"
        r"|^torch/distributed/fsdp/.*: _init_sharded_param$",
        "a module's parameters and buffers are made, loaded or moved",
    ),
    Trait(
        "workspace",
        r"getCurrentCUDABlasHandle|setWorkspaceForHandle|getCUDABlasLtWorkspace|allocateCUDABlasLtWorkspace"
        r"|parseChosenWorkspaceSize|cudnn\w*Workspace",
        "a library's workspace: cuBLAS, cuBLASLt",
    ),
    Trait(
        "loss",
        r"^torch/nn/functional\.py\(\d+\): (cross_entropy|nll_loss|log_softmax|kl_div)$|^torch/nn/modules/loss\.py",
        "the loss, or the logits of all tokens that it is made of",
        innermost=r"(?i)\): \w*(loss|cross_entropy)\w*$",
    ),
)

#: Frames that stand between an allocation and whoever asked for it.
WRAPPERS = r"^torch/(_ops|_compile|_dynamo/eval_frame|utils/_contextlib|_library/\w+)\.py"

#: Workspaces that PyTorch allocates for cuBLAS where nothing says otherwise, by thread and stream: 32 MiB on Hopper and
#: later, 8,519,680 bytes (`:4096:2:16:8`) before; for cuBLASLt 1 MiB, or as much as for cuBLAS on Hopper (torch 2.7).
WORKSPACES = (32 << 20, 8_519_680, 1 << 20)

#: Code in which matrices are multiplied, so that a workspace may be allocated there.
MULTIPLIES = (
    r"^torch/nn/modules/linear\.py|^torch/nn/functional\.py\(\d+\): linear$|: (mm|bmm|matmul|einsum|addmm)$"
    r"|^aten::(mm|addmm|bmm|linear|matmul|einsum)$"
)
