"""Ranges for training code, and the profiler's start and stop at the right steps.

    from stepscope import annotate

    annotate.setup(rank=rank, pp=(pp_rank, pp), dp=(dp_rank, dp), ep=(ep_rank, ep), mbs=1, seq=4096)
    for n in range(steps):
        with annotate.step(n):
            with annotate.chunk(forward=(i, 0), backward=(j, 1)):
                with annotate.stage(3, 2, "f"):
                    ...

Outside a capture every call returns one shared object that does nothing, and inside torch.compile too: no graph breaks,
no recompiles when profiling begins. `stepscope capture run` sets the variables that switch it on (STEPSCOPE_CAPTURE_*);
under an nsys started by hand, ranges are written and the profiler is left alone. Nothing but the standard library is
imported before a capture, and this file needs no other part of stepscope.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from stepscope.annotate.profilers import Emitter, nvtx_emitter
from stepscope.annotate.recorder import Recorder, Settings
from stepscope.annotate.safety import at_failure, harmless

#: A coordinate on an axis of the mesh, and the axis's size.
Place = tuple[int, int]

_AXES = ("pp", "dp", "cp", "ep")


class _Nothing:
    """The range that is none."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *raised: object) -> None:
        return None


class _Range:
    """A range of the emitter that is on."""

    __slots__ = ("_emit", "_text")

    def __init__(self, emit: Emitter, text: str) -> None:
        self._emit, self._text = emit, text

    @harmless
    def __enter__(self) -> None:
        self._emit.push(self._text)

    @harmless
    def __exit__(self, *raised: object) -> None:
        self._emit.pop()


class _Step:
    """One training step under a capture: the recorder decides what begins and ends with it."""

    __slots__ = ("_number", "_recorder")

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder, self._number = recorder, number

    @harmless
    def __enter__(self) -> None:
        global _emit, annotated
        annotated = True
        _emit = self._recorder.begin(self._number, _label)

    @harmless
    def __exit__(self, kind: object, *raised: object) -> None:
        global _emit
        _emit = self._recorder.end(self._number, failed=kind is not None)


_NOTHING = _Nothing()
_open: Any = None  # the step that `begin_step` began
_emit: Emitter | None = None
_recorder: Recorder | None = None
_label: str | None = None
_ready = False
#: Whether the program marks its own steps: hooks then leave them to it.
annotated = False


def _never() -> bool:
    return False


#: torch's, once torch is there. torch.compile folds it to True, so that nothing below it is traced or guarded on; what
#: stands for a range there is made in the compiled region, as torch.compile enters no object made outside of it.
_compiling: Callable[[], bool] = _never


@harmless
def _bind() -> None:
    """Take what the environment says, once; and torch's compiler flag as soon as there is a torch."""
    global _compiling, _emit, _ready, _recorder
    compiler = getattr(sys.modules.get("torch"), "compiler", None)  # None while torch is being imported, too
    if compiler is not None and _compiling is _never:
        _compiling = compiler.is_dynamo_compiling
    if _ready:
        return
    _ready = True
    at_failure(lambda _: emitting(None))
    settings = Settings.of(os.environ)
    if settings is not None:
        _recorder = Recorder(settings)
    elif "NSYS_PROFILING_SESSION_ID" in os.environ and os.environ.get("STEPSCOPE_ANNOTATE") != "0":
        _emit = nvtx_emitter()


def setup(
    *, rank: int, pp: Place = (0, 1), dp: Place = (0, 1), cp: Place = (0, 1), ep: Place = (0, 1), mbs: int, seq: int,
    **extra: Place | int | str,
) -> None:  # fmt: skip
    """Say once who this process is. The label stands around what is captured.

    Axes are (coordinate, size); further ones (`tp=(0, 2)`) and further pairs (`layers=27`) are kept in the label.
    """
    global _label
    if _compiling():
        return
    places = {"pp": pp, "dp": dp, "cp": cp, "ep": ep, **{k: v for k, v in extra.items() if isinstance(v, tuple)}}
    pairs = {"mbs": mbs, "seq": seq, **{k: v for k, v in extra.items() if not isinstance(v, tuple)}}
    axes = " ".join(f"{axis}={at}/{size}" for axis, (at, size) in places.items())
    _label = f"rank={rank}; {axes}; " + " ".join(f"{k}={v}" for k, v in pairs.items())
    _bind()
    if _recorder is not None:
        _recorder.rank = rank
    elif _emit is not None:
        harmless(_emit.push)(_label)  # an nsys started by hand: the label lasts as long as the process


def step(number: int) -> Any:
    """A training step, `step N`. Under `capture run`, the profiler starts and stops with steps.

    Steps are counted from the first that this process runs: a job resumed at step 5000 is captured too.
    """
    if _compiling():
        return nullcontext()
    if not _ready:
        _bind()
    if _recorder is not None:
        return _Step(_recorder, number)
    return _NOTHING if _emit is None else _Range(_emit, f"step {number}")


def begin_step(number: int) -> None:
    """`step` for callbacks, which cannot be a `with`: the step begins here, and lasts until `end_step`."""
    global _open
    if _open is None and not _compiling():
        _open = step(number)
        _open.__enter__()


def end_step() -> None:
    """The step of `begin_step` is over."""
    global _open
    if _open is not None:
        opened, _open = _open, None
        opened.__exit__(None, None, None)


def emitter() -> Emitter | None:
    """Where ranges go now; None outside of what is captured."""
    return _emit


def emitting(emit: Emitter | None) -> None:
    """Ranges go here from now on: for hooks, which drive the capture of a program that marks no steps."""
    global _emit
    _emit = emit


def label() -> str | None:
    """What `setup` said, if it was called."""
    return _label


def chunk(forward: Place | None = None, backward: Place | None = None) -> Any:
    """A chunk of the pipeline: forward and/or backward of (micro-batch, phase); neither is deferred weights."""
    if _compiling():
        return nullcontext()
    if _emit is None:
        return _NOTHING
    parts = [f"{way} chunk {at[0]} (phase{at[1]})" for way, at in (("forward", forward), ("backward", backward)) if at]
    return _Range(_emit, " ".join(parts) or "weight chunk")


def stage(layer: int, number: int, way: str) -> Any:
    """Stage 1 to 5 of a layer; way is `f`, `b` or `w`: `layer03.stage2_f`."""
    if _compiling():
        return nullcontext()
    if _emit is None:
        return _NOTHING
    return _Range(_emit, f"layer{layer:02d}.stage{number}_{way}")


def fused(before: int, layer: int, way: str) -> Any:
    """The end of one layer with the beginning of the next: `layer03_stage5_f_layer04_stage1_f`."""
    if _compiling():
        return nullcontext()
    if _emit is None:
        return _NOTHING
    return _Range(_emit, f"layer{before:02d}_stage5_{way}_layer{layer:02d}_stage1_{way}")


def pipeline() -> Any:
    """Sends and receives between pipeline stages: `pipeline send/recv`."""
    if _compiling():
        return nullcontext()
    if _emit is None:
        return _NOTHING
    return _Range(_emit, "pipeline send/recv")


def region(text: str) -> Any:
    """Anything else: `prolog_f`, `optimizer`, `data`."""
    if _compiling():
        return nullcontext()
    if _emit is None:
        return _NOTHING
    return _Range(_emit, text)


@harmless
def finish() -> None:
    """End a capture that the training loop left early. Without it, such a capture is incomplete and is said to be."""
    global _emit
    if _recorder is not None:
        _emit = _recorder.finish()


@harmless
def common_stop() -> None:
    """For a trainer that calls cudaProfilerStop itself: from now on that call waits for all ranks first.

    Under one profiler, the first rank to stop ends the capture for all of them.
    """
    from stepscope.annotate.profilers import make_stop_common

    make_stop_common()


if "torch" in sys.modules:
    _bind()
