"""FLOPs of a declared model: products of a token with the weights it uses, and of its attention (semantics §16)."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.declared import Model, matrices


@dataclass(frozen=True)
class Part:
    """A part of one token's forward pass: its FLOPs, the same with causal attention counted half, and how they come."""

    name: str
    flops: int
    causal: int
    formula: str

    def of(self, full: bool) -> int:
        """Its FLOPs with attention in full, or as far as a causal mask shows it."""
        return self.flops if full else self.causal

    def shown(self, full: bool, times: int = 1) -> str:
        """The formula of so many times its FLOPs."""
        half = "" if full or self.flops == self.causal else " / 2"
        return f"{self.formula}{f' x {times}' if times > 1 else ''}{half}"


#: A backward pass multiplies each gradient by weights and by activations: twice the forward pass.
TRAINING = 3


def of_token(model: Model, sequence: int) -> list[Part]:
    """Every term of one token's forward pass in a sequence of so many."""
    parts = [Part(m.part, m.flops, m.flops, f"2 x {m.inputs:,} x {m.outputs:,} x {m.used:,}") for m in matrices(model)]
    widths = model.head + model.value
    scores = 2 * model.layers * model.heads * sequence * widths
    if scores:
        formula = f"2 x {model.layers} x {model.heads} x {sequence:,} x {widths}"
        parts.append(Part("attention scores", scores, scores // 2, formula))
    return parts
