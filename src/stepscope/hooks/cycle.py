"""Where a training step ends, told by the order of backward passes and optimizer steps.

Optimizer steps with no backward pass between them are one burst: AdamW beside Muon, ZeRO's step for each group of
parameters, an optimizer for each parameter that steps within the backward pass. Backward passes without an optimizer
step after them accumulate gradients. Where every burst begins with the same optimizer, each ends a step. Else (a GAN's
two optimizers, or a critic that steps five times for each step of the generator) a step begins where the optimizer that
stepped first of all comes after another one.

Whether a burst is over is only known at the next backward pass; so ends are told late until steps were alike, and at
once from then on.
"""

from __future__ import annotations

from enum import Flag

#: The optimizers of a burst, in order.
Burst = tuple[int, ...]
#: Identical steps in a row before the order counts as learned.
_ALIKE = 2


class End(Flag):
    """Whether a step has ended: with this optimizer step; before the burst that begins with it; or both, one each."""

    NO = 0
    NOW = 1
    BEFORE = 2


class Cycle:
    """Watches the order of one process's backward passes and optimizer steps."""

    def __init__(self) -> None:
        #: the bursts of a step, once several steps were alike
        self.known: tuple[Burst, ...] | None = None
        self._burst: list[int] = []  # that is going on
        self._bursts: list[Burst] = []  # of this step, before it
        self._last: tuple[Burst, ...] = ()  # the bursts of the step before
        self._alike = 0
        self._leader: int | None = None
        self._others = False  # whether bursts begin with other optimizers too
        self._backward = True  # since the last optimizer step

    def backward(self) -> None:
        """A backward pass begins."""
        self._backward = True

    def stepped(self, optimizer: int) -> End:
        """An optimizer has stepped."""
        ended = End.NO
        if self._backward:
            self._backward = False
            ended = self._next_burst(optimizer)
        self._burst.append(optimizer)
        return ended | self._at_once()

    def _next_burst(self, optimizer: int) -> End:
        """A burst begins: the one before it is over, and maybe a step with it."""
        if self._leader is None:
            self._leader = optimizer
        elif optimizer != self._leader and not self._others:
            self._others = True
            self._forget()
        if not self._burst:
            return End.NO
        self._bursts.append(tuple(self._burst))
        self._burst = []
        if optimizer != self._leader or (self._others and self._bursts[-1][0] == self._leader):
            return End.NO
        self._learn(tuple(self._bursts))
        self._bursts = []
        return End.BEFORE

    def _at_once(self) -> End:
        """Where the order is known: the step is over if this is all of its last burst."""
        known, burst = self.known, tuple(self._burst)
        if known is None or burst != known[-1]:
            return End.NO
        if known.count(burst) > 1 and len(self._bursts) + 1 < len(known):
            return End.NO
        self._learn((*self._bursts, burst))
        self._bursts, self._burst = [], []
        return End.NOW

    def _learn(self, bursts: tuple[Burst, ...]) -> None:
        self._alike = self._alike + 1 if bursts == self._last else 1
        self._last = bursts
        if self._alike >= _ALIKE:
            self.known = bursts

    def _forget(self) -> None:
        self.known, self._alike, self._last = None, 0, ()
