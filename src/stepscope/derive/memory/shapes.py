"""The ops of a declared transformer, as the code that trains it runs them: what each makes and keeps (semantics §17).

Sizes are per rank. T are the tokens of a micro-batch, h the width, q and k those of all queries and of all keys (or
values) of the rank, f that of the feed-forward, V the vocabulary. The ops are those of transformers' own modules in
PyTorch's eager mode: RMSNorm computes in fp32 and keeps that copy, rotary embeddings keep nothing (their angles need no
gradient), flash attention keeps queries, keys, values, output and the log-sum-exp, a gated feed-forward keeps four
tensors, and the loss is computed of fp32 logits.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.derive.memory.tape import Op, Tensor
from stepscope.model.declared import Model

#: Bytes of what is computed in, and of fp32.
HALF, FULL = 2, 4


@dataclass(frozen=True)
class Shape:
    """One rank's share of a micro-batch and of a model."""

    model: Model
    tokens: int
    queries: int  # width of all heads
    keys: int
    heads: int
    feed_forward: int
    expert_tokens: int
    expert_width: int
    shared_width: int
    vocabulary: int
    #: bytes of a weight, and of the residual stream: 4 under autocast, whose weights are cast for every product
    weight: int
    flash: bool
    seq: int
    local_experts: int
    #: Of how many ranks that have the same weight each keeps a share of its gradient (ZeRO 2), by weights of experts
    #: and all others; 0: autograd's gradient goes into a buffer that is there all the time.
    expert_shards: int
    shards: int

    @property
    def residual(self) -> int:
        return self.weight

    @property
    def autocast(self) -> bool:
        return self.weight == FULL


def _t(label: str, formula: str, size: int) -> Tensor:
    return Tensor(label, formula, size)


class Builder:
    """Ops of one rank's layers; `prefix` tells layers apart."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.ops: list[Op] = []

    def add(
        self, inputs: tuple[str, ...], output: str, tensor: Tensor, *, saves: tuple[str, ...] = (),
        extra: tuple[Tensor, ...] = (), weight: Tensor | None = None, passes: bool = False,
        scratch: tuple[Tensor, ...] = (), held: bool = False,
    ) -> str:  # fmt: skip
        if weight is not None:
            shards = self.shape.expert_shards if "experts: " in weight.label else self.shape.shards
            if shards != 1:  # made in full, reduced, and gone
                scratch = (*scratch, weight)
                kept = Tensor(weight.label, f"{weight.formula} / {shards}", weight.size // shards) if shards else None
                weight = kept
        self.ops.append(Op(inputs, output, tensor, saves, extra, weight, passes, scratch, held))
        return output

    # -- pieces --------------------------------------------------------------------------------------------------------

    def norm(self, x: str, name: str, of: str, letters: str, width: int, size: int, parameters: int) -> str:
        """RMSNorm as transformers has it, or LayerNorm, which is one op that keeps its input.

        `of` is what is normed, `width` its width over all tokens and `size` the bytes of one element.
        """
        s, cells = self.shape, self.shape.tokens * width
        weight = _t(f"weight of {of}", "h", parameters * s.weight)
        if s.model.layer_norm:
            y = _t(f"{of}, normed", f"{size} T {letters}", size * cells)
            return self.add((x,), f"{name}.y", y, saves=(x,), weight=weight)
        full = _t(f"{of}, in fp32", f"4 T {letters}", FULL * cells)
        copied = size != FULL
        f = self.add((x,), f"{name}.f", full) if copied else x
        self.add(
            (f,), f"{name}.r", _t(f"{of}, inverse root mean square", "4 T", FULL * cells // max(1, parameters)),
            saves=(f, f"{name}.r"), scratch=(_t(f"of {of}, squared", f"4 T {letters}", FULL * cells),) * 2,
        )  # fmt: skip
        scaled = _t(f"{of}, scaled", f"4 T {letters}", FULL * cells)
        n = self.add((f, f"{name}.r"), f"{name}.n4", scaled, saves=(f, f"{name}.r"), scratch=(scaled,))
        if copied:
            n = self.add((n,), f"{name}.n", _t(f"{of}, scaled, cast back", f"{size} T {letters}", size * cells))
        out = _t(f"{of}, normed", f"{size} T {letters}", size * cells)
        return self.add((n,), f"{name}.y", out, saves=(n,), weight=weight, scratch=(out,))

    def linear(
        self, x: str, name: str, label: str, letters: str, inputs: int, outputs: int, *, tokens: int = 0,
        copies: int = 1, held: bool = False,
    ) -> str:  # fmt: skip
        """A product with a weight, or of `copies` experts: keeps its input, and under autocast the weight's copy."""
        s = self.shape
        cells = inputs * outputs * copies
        gradient = _t(f"weight of {label}", f"{s.weight} a weight", cells * s.weight)
        cast = (_t("weights, cast for products", "2 a weight", cells * HALF),) if s.autocast else ()
        out = _t(label, f"2 T {letters}", HALF * (tokens or s.tokens) * outputs)
        return self.add((x,), name, out, saves=(x,), weight=gradient, extra=cast, held=held)

    def of_norm(self, y: str, name: str, label: str, letters: str, outputs: int, *, held: bool = False) -> str:
        """A product with what a norm made. Under autocast each product casts that for itself: only weights' copies are
        shared."""
        m = self.shape.model
        if self.shape.autocast:
            copy = _t(f"input of {label}, cast", "2 T h", HALF * self.shape.tokens * m.width)
            y = self.add((y,), f"{name}.c", copy)
        return self.linear(y, name, label, letters, m.width, outputs, held=held)

    # -- a layer -------------------------------------------------------------------------------------------------------

    def attention(self, x: str, p: str) -> str:
        s, m = self.shape, self.shape.model
        y = self.norm(x, f"{p}n1", "input of attention", "h", m.width, s.residual, m.width)
        q = self.of_norm(y, f"{p}q", "queries", "q", s.queries)
        k = self.of_norm(y, f"{p}k", "keys", "k", s.keys)
        v = self.of_norm(y, f"{p}v", "values", "k", s.keys)
        if m.qk_norm:
            q = self.norm(q, f"{p}qn", "queries", "q", s.queries, HALF, m.head)
            k = self.norm(k, f"{p}kn", "keys", "k", s.keys, HALF, m.head)
        if not m.layer_norm:  # rotary embeddings; without them positions are added to the input
            q, k = self.rotate(q, f"{p}qe", "queries", "q", s.queries), self.rotate(k, f"{p}ke", "keys", "k", s.keys)
        rows, out = s.tokens * s.queries, f"{p}o"
        lse = _t("log-sum-exp of attention", "4 T heads", FULL * s.tokens * s.heads)
        if s.flash:
            wide = (_t("gradients of keys and values, one a head", "4 T q", 2 * HALF * rows),) * (s.keys < s.queries)
            scratch = (_t("gradient of queries, in fp32", "4 T q", FULL * rows), *wide)
            self.add((q, k, v), out, _t("output of attention", "2 T q", HALF * rows), saves=(q, k, v, out),
                     extra=(lse,), scratch=scratch)  # fmt: skip
        else:
            scores = s.tokens * s.seq * s.heads
            a = self.add((q, k), f"{p}s", _t("scores, in fp32", "4 T S heads", FULL * scores), saves=(q, k, f"{p}s"))
            b = self.add((a,), f"{p}a", _t("scores", "2 T S heads", HALF * scores))
            self.add((b, v), out, _t("output of attention", "2 T q", HALF * rows), saves=(b, v))
        z = self.linear(out, f"{p}p", "projected attention", "h", s.queries, m.width)
        return self.residual(x, z, f"{p}x1")

    def rotate(self, x: str, name: str, of: str, letters: str, width: int) -> str:
        size = HALF * self.shape.tokens * width
        rotated = _t(f"{of}, rotated", f"2 T {letters}", size)
        return self.add((x,), name, rotated, scratch=(_t(f"halves of {of}", f"2 T {letters}", size),) * 2)

    def residual(self, x: str, z: str, name: str) -> str:
        s = self.shape
        size = s.residual * s.tokens * s.model.width
        return self.add((x, z), name, _t("residual stream", f"{s.residual} T h", size), passes=not s.autocast)

    def feed_forward(self, x: str, p: str, width: int, tokens: int, what: str) -> str:
        """Of as many tokens as pass through it: the input is x, the output is theirs."""
        m = self.shape.model
        copies = self.shape.local_experts if what == "experts" else 1

        def t(label: str) -> Tensor:
            return _t(f"{what}: {label}", "2 T f", HALF * tokens * width)

        def product(name: str, label: str) -> str:
            if what != "experts":
                return self.of_norm(x, name, f"{what}: {label}", "f", width)
            return self.linear(x, name, f"{what}: {label}", "f", m.width, width, tokens=tokens, copies=copies)

        if not m.gated:
            u = product(f"{p}u", "up")
            a = self.add((u,), f"{p}a", t("activated"), saves=(u,))
            return self.linear(a, f"{p}d", f"{what}: down", "h", width, m.width, tokens=tokens, copies=copies)
        g = product(f"{p}g", "gate")
        a = self.add((g,), f"{p}a", t("gate, activated"), saves=(g,))
        u = product(f"{p}u", "up")
        z = self.add((a, u), f"{p}m", t("gated"), saves=(a, u))
        return self.linear(z, f"{p}d", f"{what}: down", "h", width, m.width, tokens=tokens, copies=copies)

    def layer(self, x: str, p: str, mixture: bool) -> str:
        """One layer; the name of its output."""
        s, m = self.shape, self.shape.model
        x = self.attention(x, p)
        y = self.norm(x, f"{p}n2", "input of feed-forward", "h", m.width, s.residual, m.width)
        if not mixture:
            return self.residual(x, self.feed_forward(y, p, s.feed_forward, s.tokens, "feed-forward"), f"{p}x2")
        rows = s.expert_tokens
        sent = self.add((y,), f"{p}e", _t("tokens of experts", "2 T h", HALF * rows * m.width))
        z = self.feed_forward(sent, f"{p}e", s.expert_width, rows, "experts")
        joined = self.add(
            (z,), f"{p}w", _t("weighted output of experts", "2 T h", HALF * s.tokens * m.width), saves=(z,)
        )
        x = self.residual(x, joined, f"{p}x2")
        if s.shared_width:
            x = self.residual(x, self.feed_forward(y, f"{p}s", s.shared_width, s.tokens, "shared experts"), f"{p}x3")
        return x

    # -- the ends ------------------------------------------------------------------------------------------------------

    def embedding(self) -> str:
        s, m = self.shape, self.shape.model
        size = s.residual * s.tokens * m.width
        table = None if m.tied else _t("weight of the embedding", "V h", s.vocabulary * m.width * s.weight)
        return self.add((), "x", _t("residual stream", f"{s.residual} T h", size), weight=table)

    def loss(self, x: str) -> str:
        """The last norm, the logits and the loss: logits are cast to fp32, and the program holds them as they were."""
        s, m = self.shape, self.shape.model
        y = self.norm(x, "n", "output", "h", m.width, s.residual, m.width)
        cells = s.tokens * s.vocabulary
        logits = self.of_norm(y, "logits", "logits", "V", s.vocabulary, held=True)
        full = self.add((logits,), "full", _t("logits, in fp32", "4 T V", FULL * cells))
        log = self.add((full,), "log", _t("log of softmax", "4 T V", FULL * cells), saves=("log",))
        return self.add((log,), "loss", _t("loss", "4", FULL))
