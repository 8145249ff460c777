"""Names of public kernels: PyTorch, cuBLAS, cuDNN, CUTLASS, Triton, Apex, Transformer Engine, FlashAttention, ROCm.

Patterns are tried in order on the demangled name without `void` and anonymous namespaces; the first that matches
decides. What stands first is what other patterns would take for something else: the softmax in an attention kernel,
the copy in a compiled one.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Role(IntEnum):
    """What a kernel does."""

    OTHER = 0
    PRODUCT = 1  # of matrices
    CONVOLUTION = 2
    ATTENTION = 3  # fused: the scores never reach memory
    SOFTMAX = 4
    NORM = 5  # layer, RMS, batch, group
    ELEMENTWISE = 6
    REDUCTION = 7
    COPY = 8  # same numbers, elsewhere: clones, contiguous(), concatenation, transfers within the device
    CAST = 9  # a copy into another type
    FILL = 10
    LAYOUT = 11  # transposition, NCHW to NHWC
    RANDOM = 12  # dropout, random numbers
    OPTIMIZER = 13  # foreach and fused kernels over lists of tensors
    EMBEDDING = 14
    INDEX = 15  # gather, scatter, index_put, masks
    SORT = 16  # sort, top-k, scan, nonzero, unique
    LOSS = 17  # log-softmax, cross-entropy, and other losses
    FUSED = 18  # made by a compiler: elementwise and reductions of several ops
    POOLING = 19  # pooling and resampling
    COMMUNICATION = 20
    GRAPH = 21  # a whole CUDA graph, recorded as one

    @property
    def word(self) -> str:
        """As a person says it."""
        return self.name.lower()


#: Kernels that read and write each number about once: memory bounds them, whoever writes them.
MEMORY_BOUND = frozenset(
    {
        *(Role.SOFTMAX, Role.NORM, Role.ELEMENTWISE, Role.REDUCTION, Role.COPY, Role.CAST, Role.FILL, Role.LAYOUT),
        *(Role.RANDOM, Role.OPTIMIZER, Role.EMBEDDING, Role.INDEX, Role.LOSS, Role.FUSED, Role.POOLING),
    }
)
#: Kernels whose work is FLOPs.
MULTIPLYING = frozenset({Role.PRODUCT, Role.CONVOLUTION, Role.ATTENTION})

_RULES: tuple[tuple[Role, str], ...] = (
    (Role.GRAPH, r"^\[graph"),
    (Role.FILL, r"^\[memset|^memset\b|rocclr_fillBuffer"),
    (Role.COPY, r"^\[memcpy|^(hip)?memcpy\b|rocclr_copyBuffer"),
    (Role.ATTENTION, r"^triton_tem_.*(flex_attention|sdpa)"),
    (Role.PRODUCT, r"^triton_(tem|mm)_?|^_?(grouped_)?(mm|matmul|gemm)_kernel|^bmm_(Mx)?(E\dm\d|Bfloat16|Fp\d)"),
    (Role.FUSED, r"^triton_"),
    (
        Role.ATTENTION,
        r"flash_?(attn|fwd|bwd|fprop|bprop|::)|fmha|sdpa|\battn_(fwd|bwd)|_attn_(fwd|bwd)|sage_fwd|paged_(attention|kv)"
        r"|compute_dot_do_o|convert_dq|fused_attention|mem_?eff\w*attention|AttentionKernel|AttentionBackwardKernel"
        r"|FlashAttn|dot_product_attention|ring_?exchange|bwd_preprocess|unified_attention|(Batch|Single)(Prefill|Decode)With",
    ),
    (Role.EMBEDDING, r"split_embedding|embedding_(bag|dense)"),
    (Role.FILL, r"multi_tensor_apply.*ZeroFunctor"),
    (Role.COPY, r"multi_tensor_apply.*(UnaryOpFunctor.*\bCopy<|CopyFunctor)"),
    (
        Role.OPTIMIZER,
        r"adam|adagrad|rmsprop|\blamb_|lamb(stage|_cuda)|FusedSgd|\bsgd|\blion\b|muon|newton_?schulz|multi_tensor"
        r"|lpnorm|amp_update_scale|non_finite",
    ),
    (
        Role.LAYOUT,
        r"^[^<(]*(nchwToNhwc|nhwcToNchw|convertTensor|tensorTransform|transpose|CNHW2NCHW|NCHW2CNHW|nhwc2nchw|nchw2nhwc"
        r"|permute_(kernel|0213)|SubTensorOpWith|AddPadding)",
    ),
    (
        Role.CONVOLUTION,
        r"implicit_?gemm|convol|conv(2d|3d|_)|_conv\b|[wd]grad|fprop|scudnn|winograd|miopen.*conv|igemm_(fwd|bwd|wrw)"
        r"|flip_filter|fft2d|computeOffsets|kern_precompute_indices|im2d?2?col|col2im|vol2col|depthwise|Sp3AsmConv"
        r"|scalePackedTensor|xmma_\w*cudnn|cudnn::.*(gemm|conv)|init_device_workspace",
    ),
    (
        Role.LOSS,
        r"nll_loss|cross_?entropy|log_?soft_?max|ctc_|mse_|smooth_l1|huber|binary_cross|bce_|kl_div|\bloss"
        r"|softmax_warp_(forward|backward)<([^,<>]+, ?){3}(\(int\))?\d+, ?(\(bool\)1|true|1)\b",
    ),
    (Role.SOFTMAX, r"soft_?max"),
    (
        Role.NORM,
        r"layer_?norm|rms_?norm|batch_?norm|group_?norm|instance_norm|\bbn_(fw|bw)|GammaBeta|RowwiseMoments|_norm_"
        r"|cuApplyLayerNorm|cuComputeGradInput|cuComputePartGradGammaBeta|Compute\w*FusedParams|ComputeInternalGradients"
        r"|\bln_(fwd|bwd)|rmsnorm|welford",
    ),
    (Role.RANDOM, r"dropout|distribution_|philox|curand|bernoulli|masked_scale|random"),
    (Role.ELEMENTWISE, r"rotary"),
    (
        Role.EMBEDDING,
        r"embedding|compute_grad_weight|krn_partial|sum_and_scatter|compute_num_of_partial|permute_pooled"
        r"|bounds_check_indices|linearize_index|fbgemm_gpu::.*(permute|offsets)",
    ),
    (Role.ELEMENTWISE, r"masked_fill|elementwise_kernel_with_index"),
    (
        Role.SORT,
        r"radix_?sort|sort|top_?k|unique|scan|cumsum|cumprod|nonzero|DeviceSelect|compact|histogram|ReduceByKey"
        r"|bucketize|searchsorted|multinomial|argsort",
    ),
    (Role.POOLING, r"pool|upsample|interpolate|grid_sampl"),
    (
        Role.INDEX,
        r"^[^<(]*(index|gather|scatter|masked_select|take_|\bput_|and_cache|store_\w*cache|routing|moe_align)"
        r"|index_(put|copy|kernel|add|fill)",
    ),
    (
        Role.PRODUCT,
        r"(^|[^b])gemm|nvjet|Cijk_|gemv|splitk_?reduce|xmma|cublas|dot_kernel|cutlass|wgmma|scal_kernel|epilogue::impl"
        r"|matmul|marlin|grouped_mm|wmma|reduce_1Block|ReduceSplitK|addmm|_bmm_",
    ),
    (Role.FILL, r"FillFunctor|\bfill|_fill\b|zeros?_kernel|ZeroFunctor"),
    (
        Role.CAST,
        r"(bfloat16|half|float8\w*|float)_?copy_kernel|bfloat16tofloat32|^[^(]*(_to_float|float_to_\w+)|quantize|_quant_kernel"
        r"|^[^<(]*cast|direct_copy_kernel.*(LoadWithCast|StoreWithCast|memory::\w*Cast)",
    ),
    (Role.COPY, r"copy|CatArray|clone|StridedCopy|pad_|roll_cuda|flip_"),
    (Role.REDUCTION, r"reduce|\bsum_|_sum\b|mean_kernel|max_kernel|min_kernel|logsumexp|\bnorm_kernel|argmax|qparam"),
    (
        Role.ELEMENTWISE,
        r"elementwise|pointwise|saxpy|axpy|act_and_mul|rotary|rope|gelu|silu|relu|swiglu|glu_|arange|sigmoid|tanh"
        r"|cupy_\w+__|\bmul_|\badd_|triu_tril|bias_rescale_qkv",
    ),
)
RULES = tuple((role, re.compile(pattern, re.IGNORECASE)) for role, pattern in _RULES)

#: The numbers that are multiplied, by the name of a product, a convolution or fused attention.
_PRECISIONS: tuple[tuple[str, str], ...] = (
    ("fp8", r"e2m1(mx)?e[45]m"),  # four bits by eight: at the rate of eight
    ("fp4", r"e2m1|nvfp4|mxf4"),
    ("fp8", r"e4m3|e5m2|nvjet_(sm\d+_)?q|fp8|_f8\b|float8|Cijk\w*?_(F8|B8)"),
    ("int8", r"[^a-z]imma|i8i8|_i8816|_i16832|int8"),
    ("fp64", r"[dz]gemm|f64f64|d884|d16816|_f64_|nvjet_(sm\d+_)?d|double|Cijk\w*?_D(B|_)"),
    ("bf16", r"bf16|bfloat16|nvjet_(sm\d+_)?t|Cijk\w*?_B_?[BS]S?_"),
    ("fp16", r"fp16|f16|half|hgemm|h(884|1688|16816)|nvjet_(sm\d+_)?h|Cijk\w*?_H(HS?|B|SS)_"),
    ("tf32", r"tf32|s1688(gemm|fprop|dgrad|wgrad)|s1684|nvjet_(sm\d+_)?s|tensorop_s16"),
    (
        "fp32",
        r"sgemm|simt|f32f32|ffma|scudnn|float|gemmSN_|gemmk1_|Cijk\w*?_SB?_|_f32_|convolve_common_engine_float|fp32",
    ),
)
PRECISIONS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _PRECISIONS)

#: Names that say of themselves that they run in the backward pass.
BACKWARD = re.compile(
    r"backward|[wd]grad|bwd|bprop|_grad_|_grad\b|GammaBeta|igemm_(bwd|wrw)|compute_dot_do_o|convert_dq|reduce_head|_bw_"
    r"|compute_grad_weight|krn_partial|sum_and_scatter|ComputeInternalGradients|cuComputeGradInput",
    re.IGNORECASE,
)
#: Widest alignment that a product's name admits to: fewer elements than a vector load holds.
ALIGNMENT = re.compile(r"align(\d{1,9})\b")
#: Sums of parts, and products with a vector: no tensor core would speed them up.
NO_MATRIX = re.compile(r"gemv|dot_kernel|splitk_?reduce|reduce_1Block|ReduceSplitK|scal_kernel", re.IGNORECASE)
