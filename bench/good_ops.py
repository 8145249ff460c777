"""Ops whose cost on a GPU is worth knowing: each is timed alone, the most important first (`PARTS`).

Ops are captured into a CUDA graph and replayed back to back, so that the host's time is none of theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4}
Row = dict[str, Any]
Work = Callable[[], Any]


def sized(n: int) -> int:
    """The size on a GPU; a dry run's is tiny."""
    return n if GPU else max(8, n >> 6)


def spent_us(work: Work) -> float:
    """The shortest time of one call, in µs."""
    if not GPU:
        begun = time.perf_counter()
        work()
        return 1e6 * (time.perf_counter() - begun)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        work()
    once = _between(begin, end, work)
    calls = int(min(50, max(2, 4.0 / max(once, 1e-3))))
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            for _ in range(calls):
                work()
        repeat: Work = graph.replay
    except RuntimeError:  # not everything can be captured: then the host's time is in it, where it is longer
        torch.cuda.synchronize()
        repeat = lambda: [work() for _ in range(calls)]  # noqa: E731
    return min(1e3 * _between(begin, end, repeat) / calls for _ in range(4))


def _between(begin: torch.cuda.Event, end: torch.cuda.Event, work: Work) -> float:
    """Milliseconds of the GPU."""
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def numbers(*shape: int, precision: str = "bf16", grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=TYPES[precision]).requires_grad_(grad)


def with_tf32(precision: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def row(op: str, precision: str, work: Work, flops: float, moved: float, **sizes: object) -> Row:
    return {"op": op, "precision": precision, **sizes, "flops": flops, "bytes": moved, "us": spent_us(work)}


def product(precision: str, m: int, n: int, k: int, batch: int = 1, kind: str = "product") -> Row:
    with_tf32(precision)
    lead = (batch,) if batch > 1 else ()
    a, b = numbers(*lead, m, k, precision=precision), numbers(*lead, n, k, precision=precision).transpose(-1, -2)
    moved = batch * (m * k + k * n + m * n) * BYTES[precision]
    return row(kind, precision, lambda: a @ b, 2.0 * batch * m * n * k, moved, m=m, n=n, k=k, batch=batch)


def products() -> Iterator[Callable[[], Row]]:
    for precision in ("bf16", "tf32", "fp32"):
        for n in (256, 512, 1024, 2048, 4096, 8192):
            if not (precision == "fp32" and n == 8192):
                yield partial(product, precision, *[sized(n)] * 3)
    for shape in ((8192, 1024, 1024), (8192, 4096, 1024), (8192, 1024, 4096), (8192, 50304, 1024), (16384, 3072, 1024)):
        yield partial(product, "bf16", *map(sized, shape))
    for m in (16, 64, 128, 512):
        yield partial(product, "bf16", m, sized(4096), sized(4096))
    for k in (64, 128):  # the scores of attention by hand, and their product with the values
        yield partial(product, "bf16", sized(2048), sized(2048), k, sized(64), "batched")
        yield partial(product, "bf16", sized(2048), k, sized(2048), sized(64), "batched")


def unaligned() -> Iterator[Callable[[], Row]]:
    for shape in ((8192, 50257, 1024), (4095, 4097, 4096), (4096, 4096, 4097), (4096, 4098, 4096), (4096, 4100, 4096)):
        for precision in ("bf16", "tf32"):
            yield partial(product, precision, *map(sized, shape), kind="unaligned")


def attention() -> Iterator[Callable[[], Row]]:
    lengths = [(s, d, causal) for s in (512, 1024, 2048, 4096, 8192) for d in (64, 128) for causal in (True, False)]
    for s, d, causal in [*lengths, *((2048, d, True) for d in (32, 80, 96, 256))]:
        for backward in (False, True):
            yield partial(sdpa, sized(s), d, causal, backward)


def sdpa(s: int, d: int, causal: bool, backward: bool) -> Row:
    heads, batch = max(1, 2048 // d), max(1, 16384 // s // 2) if GPU else 1
    q, k, v = (numbers(batch, heads, s, d, grad=True) for _ in range(3))
    flops = 4.0 * batch * heads * s * s * d * (0.5 if causal else 1.0)
    moved = 4 * batch * heads * s * d * 2

    def forward() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    facts = {"length": s, "head": d, "causal": causal, "batch": batch * heads}
    if not backward:
        with torch.no_grad():
            return row("attention", "bf16", forward, flops, moved, **facts)
    out = forward()
    grad = torch.randn_like(out)
    again = lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)  # noqa: E731
    return row("attention backward", "bf16", again, 2.5 * flops, 2 * moved, **facts)


def elementwise() -> Iterator[Callable[[], Row]]:
    for power in (12, 16, 20, 22, 24, 26, 28):
        for kind in ("copy", "cast", "fill", "add"):
            yield partial(streaming, kind, sized(1 << power))
    for kind in ("gelu", "gelu backward", "sum", "dropout", "transpose", "strided copy", "cat"):
        yield partial(streaming, kind, sized(1 << 26))


def streaming(kind: str, n: int) -> Row:
    """Kernels that read and write: bytes are what they have to move."""
    side = 1 << (n.bit_length() // 2)
    a = numbers(n)
    b = numbers(n, precision="fp32") if kind == "cast" else numbers(n)
    out = torch.empty_like(a)
    square = a.view(side, -1)
    works: dict[str, tuple[Work, float]] = {
        "copy": (lambda: out.copy_(a), 4.0),
        "cast": (lambda: out.copy_(b), 6.0),
        "fill": (lambda: out.zero_(), 2.0),
        "add": (lambda: torch.add(a, b, out=out), 6.0),
        "gelu": (lambda: F.gelu(a), 4.0),
        "gelu backward": (lambda: torch.ops.aten.gelu_backward(a, b), 6.0),
        "sum": (lambda: a.sum(), 2.0),
        "dropout": (lambda: F.dropout(a, 0.1), 5.0),
        "transpose": (lambda: square.t().contiguous(), 4.0),
        "strided copy": (lambda: a.view(-1, 16, 8, 64).transpose(1, 2).contiguous(), 4.0),
        "cat": (lambda: torch.cat((a, b)), 4.0 * 2),
    }
    work, each = works[kind]
    with torch.no_grad():
        return row(kind, "bf16", work, 0.0, each * n, elements=n)


def rows_of() -> Iterator[Callable[[], Row]]:
    for kind in ("layer norm", "layer norm backward", "rms norm", "rms norm backward", "softmax", "softmax backward"):
        for width in (1024, 4096):
            yield partial(over_rows, kind, sized(16384), sized(width))
    for kind in ("cross entropy", "cross entropy backward"):
        for words in (32000, 50304, 128256):
            yield partial(over_rows, kind, sized(8192), sized(words))
    for kind in ("embedding", "embedding backward"):
        yield partial(over_rows, kind, sized(16384), 1024)


def over_rows(kind: str, rows: int, width: int) -> Row:
    """Kernels over rows of a tensor, forward or backward."""
    base = kind.removesuffix(" backward")
    x = numbers(rows, width, grad=True)
    weight, bias = numbers(width, grad=True), numbers(width, grad=True)
    labels = torch.randint(0, width, (rows,), device=DEVICE)
    table = numbers(sized(50304), width, grad=True)
    words = torch.randint(0, sized(50304), (rows,), device=DEVICE)
    works: dict[str, tuple[Work, tuple[torch.Tensor, ...], float, float]] = {
        "layer norm": (lambda: F.layer_norm(x, (width,), weight, bias), (x, weight, bias), 4.0, 6.0),
        "rms norm": (lambda: F.rms_norm(x, (width,), weight), (x, weight), 4.0, 6.0),
        "softmax": (lambda: F.softmax(x, -1), (x,), 4.0, 6.0),
        "cross entropy": (lambda: F.cross_entropy(x, labels), (x,), 2.0, 4.0),
        "embedding": (lambda: F.embedding(words, table), (table,), 4.0, 6.0),
    }
    forward, inputs, once, back = works[base]
    if base == kind:
        with torch.no_grad():
            return row(kind, "bf16", forward, 0.0, once * rows * width, rows=rows, width=width)
    out = forward()
    grad = torch.ones_like(out)
    work = lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)  # noqa: E731
    return row(kind, "bf16", work, 0.0, back * rows * width, rows=rows, width=width)


def optimizers() -> Iterator[Callable[[], Row]]:
    for kind in ("adamw fused", "adamw foreach", "sgd fused", "clip"):
        yield partial(optimizer, kind)


def optimizer(kind: str) -> Row:
    each, many = sized(1 << 22), 48
    weights = [numbers(each, precision="fp32", grad=True) for _ in range(many)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    if kind == "clip":
        work: Work = lambda: torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)  # noqa: E731
    elif kind == "sgd fused":
        work = torch.optim.SGD(weights, 0.01, momentum=0.9, fused=GPU).step
    else:
        fused = kind == "adamw fused" and GPU
        work = torch.optim.AdamW(weights, fused=fused, foreach=not fused, capturable=GPU).step
    moved = {"adamw fused": 28.0, "adamw foreach": 28.0, "sgd fused": 20.0, "clip": 12.0}[kind] * each * many
    return row(kind, "fp32", work, 0.0, moved, elements=each * many)


def convolutions() -> Iterator[Callable[[], Row]]:
    shapes = ((64, 56, 64, 3), (128, 28, 128, 3), (256, 14, 256, 3), (256, 56, 64, 1))
    for precision in ("bf16", "tf32", "fp32"):
        for layout in ("nhwc", "nchw"):
            for shape in shapes[: 4 if precision == "bf16" else 2]:
                for part in ("convolution", "convolution backward"):
                    yield partial(convolution, precision, layout, part, *shape)


def convolution(precision: str, layout: str, kind: str, channels: int, side: int, out: int, kernel: int) -> Row:
    with_tf32(precision)
    torch.backends.cudnn.benchmark = True
    batch = sized(128)
    channels_last = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    x = numbers(batch, channels, side, side, precision=precision).to(memory_format=channels_last).requires_grad_()
    w = numbers(out, channels, kernel, kernel, precision=precision).to(memory_format=channels_last).requires_grad_()
    flops = 2.0 * batch * side * side * channels * out * kernel * kernel
    moved = batch * side * side * (channels + out) * BYTES[precision]
    forward = lambda: F.conv2d(x, w, padding=kernel // 2)  # noqa: E731
    facts = {"layout": layout, "channels": channels, "side": side, "out": out, "kernel": kernel, "batch": batch}
    if kind == "convolution":
        with torch.no_grad():
            return row(kind, precision, forward, flops, moved, **facts)
    made = forward()
    grad = torch.randn_like(made)
    work = lambda: torch.autograd.grad(made, (x, w), grad, retain_graph=True)  # noqa: E731
    return row(kind, precision, work, 2 * flops, 2 * moved, **facts)


def batch_norms() -> Iterator[Callable[[], Row]]:
    for layout in ("nhwc", "nchw"):
        for kind in ("batch norm", "batch norm backward"):
            yield partial(batch_norm, layout, kind)


def batch_norm(layout: str, kind: str) -> Row:
    shape = (sized(128), 256, 56, 56) if GPU else (4, 8, 8, 8)
    x = numbers(*shape).to(memory_format=torch.channels_last if layout == "nhwc" else torch.contiguous_format)
    x.requires_grad_()
    weight, bias, mean, var = (torch.ones(shape[1], device=DEVICE).requires_grad_(i < 2) for i in range(4))
    forward = lambda: F.batch_norm(x, mean, var, weight, bias, training=True)  # noqa: E731
    if kind == "batch norm":
        with torch.no_grad():
            return row(kind, "bf16", forward, 0.0, 6.0 * x.numel(), layout=layout, elements=x.numel())
    made = forward()
    grad = torch.randn_like(made)
    work = lambda: torch.autograd.grad(made, (x, weight, bias), grad, retain_graph=True)  # noqa: E731
    return row(kind, "bf16", work, 0.0, 10.0 * x.numel(), layout=layout, elements=x.numel())


#: The most important first: time may run out.
PARTS = (products, attention, elementwise, optimizers, rows_of, convolutions, batch_norms, unaligned)
