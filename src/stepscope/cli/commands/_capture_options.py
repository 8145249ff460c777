"""Options that several commands of `capture` share, and what they make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from stepscope.capture import pithtrain, size
from stepscope.capture.plan import STEPS, WARMUP, Plan, Request, plan
from stepscope.capture.schedule import SCHEDULES
from stepscope.capture.spec import TRIGGERS
from stepscope.cli.shared import MaxSize, by_user
from stepscope.errors import BadInput
from stepscope.model import declared
from stepscope.model.capturing import WANTS
from stepscope.model.option import Shell


class Mesh(NamedTuple):
    """The mesh, the model and the machine of a capture, and how many steps it has."""

    pp: Annotated[int, "Pipeline stages."] = 1
    ep: Annotated[int, "Expert-parallel ranks."] = 1
    cp: Annotated[int, "Context-parallel ranks."] = 1
    tp: Annotated[int, "Tensor-parallel ranks."] = 1
    dp: Annotated[int | None, "Data-parallel replicas; as few as possible by default."] = None
    world: Annotated[int | None, "Ranks in total; by default as many as the axes need."] = None
    model: Annotated[
        str | None,
        "Shape of a model: a preset (llama-3.1-8b; an unknown name lists all), a TOML file, or layers=32,width=4096,…",
        Shell(metavar="NAME|FILE"),
    ] = None
    layers: Annotated[int | None, "Layers; by default the model's."] = None
    seq: Annotated[int, "Sequence length."] = 4096
    mbs: Annotated[int, "Size of a micro-batch."] = 1
    schedule: Annotated[str, "Pipeline schedule.", Shell(one_of=tuple(SCHEDULES))] = "dualpipev"
    micro_batches: Annotated[int | None, "Micro-batches; by default as few as reach the steady state."] = None
    gpus_per_node: Annotated[int, "GPUs of a node."] = 8
    gpus: Annotated[int | None, "GPUs available."] = None
    nodes: Annotated[int | None, "Nodes available."] = None
    warmup: Annotated[int, "Steps before the profiled ones."] = WARMUP
    steps: Annotated[int, "Steps to profile."] = STEPS
    max_size: MaxSize = "200MB"

    def plan(self, backend: str) -> Plan:
        """The plan that the options ask for."""
        model = declared.load(self.model) if self.model else None
        asked = self._asdict() | {"model": model, "max_size": size.parse_size(self.max_size)}
        return plan(Request(backend=backend, **asked))

    def of_preset(self) -> Mesh:
        """The run that a preset makes: its mesh is never guessed, and its sequence length is its own."""
        unsaid = [axis for axis in ("pp", "ep") if not by_user(axis)]
        if unsaid:
            raise BadInput(
                f"--preset pithtrain: no --{' and no --'.join(unsaid)}, and it does not guess the mesh",
                "give both, as in --pp 2 --ep 8; 1 for none",
            )
        return self if by_user("seq") else self._replace(seq=pithtrain.SEQ)


def backends(text: str) -> tuple[str, ...]:
    """`both` is one after the other."""
    return ("nsys", "torch") if text == "both" else (text,)


Wants = Annotated[
    tuple[str, ...],
    f"What else to record: {', '.join(WANTS)}.",
    Shell(flags=("--with",), metavar="WHAT,..."),
]


class Launch(NamedTuple):
    """How to launch, for `run` and `doctor`."""

    backend: Annotated[Literal["nsys", "torch", "both"], "Profiler."] = "nsys"
    nsys: Annotated[str, "The nsys to use.", Shell(metavar="PATH")] = "nsys"
    trigger: Annotated[
        str,
        "What starts nsys: steps (nvtx: where there is no GPU); without torch a range, a time, or the start.",
        Shell(metavar=TRIGGERS),
    ] = "cuda"
    nproc: Annotated[int, "Start the command with torchrun, with this many ranks per node."] = 0
    share_gpu: Annotated[bool, "Ranks may share a GPU."] = False
    port: Annotated[int, "Rendezvous port, with --nproc.", Shell(metavar="N", between=(0, 65535))] = 29500
    inputs: Annotated[
        tuple[Path, ...], "A file that the command reads; may be repeated.", Shell(flags=("--input",))
    ] = ()
    output: Annotated[
        str | None,
        "Folder for the capture; by default stepscope-capture-TIME.",
        Shell(flags=("-o", "--output"), metavar="DIR"),
    ] = None
