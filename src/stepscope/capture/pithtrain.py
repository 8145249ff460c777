"""The PithTrain preset: its trainer by its own configuration, set for a capture.

5 warm-up steps and 1 profiled, micro-batch 1, a small learning rate, the released checkpoint loaded (so that routing is
representative) and never saved. What is missing is an error that names the step that makes it. The trainer starts and
stops the profiler itself, without waiting for other ranks; `annotate.common_stop` makes its stop a common one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepscope.capture.plan import Plan
from stepscope.errors import BadInput

#: Our name of a model → PithTrain's name of its corpus, and how it balances experts.
MODELS = {"deepseek-v2-lite": ("deepseek-v2", "sequence"), "qwen3-30b-a3b": ("qwen3", "global-batch")}
_TRAINER = "pithtrain/tasks/pretrain_lm.py"
_SETUP = "bash .agents/skills/setup-benchmark-inputs/scripts/launch_setup.sh --model"

_SCRIPT = '''"""Made by stepscope capture: PithTrain's trainer, {warmup} warm-up steps and {steps} profiled."""

from pathlib import Path

from pithtrain.modules.training import make_adamw_optimizer, make_constant_scheduler
from pithtrain.tasks.pretrain_lm import PretrainLMCfg, launch
from stepscope import annotate

cfg = PretrainLMCfg()
if hasattr(type(cfg), "data"):
    cfg.data.dataset = Path({corpus!r})
else:
    cfg.dataset = Path({corpus!r})
cfg.distributed.pipeline_parallel_size = {pp}
cfg.distributed.expert_parallel_size = {ep}
cfg.distributed.context_parallel_size = {cp}
training = cfg.training
training.model = Path({model!r})
training.optimizer = make_adamw_optimizer
training.scheduler = make_constant_scheduler
training.lr = 1e-6
training.max_steps = {last}
training.micro_batch_size = {mbs}
training.global_batch_size = {batch}
training.sequence_length = {seq}
training.moe_load_balance_type = {balance!r}
training.moe_load_balance_coef = 1e-3
training.save_location = Path({checkpoint!r})  # loaded from; nothing is saved without a save interval
training.nsys_start = {warmup}
training.nsys_stop = {last}

if __name__ == "__main__":
    annotate.common_stop()
    launch(cfg)
'''


@dataclass(frozen=True)
class Prepared:
    """The script that configures the trainer, the folder to run it in, and the inputs that it reads."""

    script: str
    root: Path
    inputs: tuple[Path, ...]


def prepare(root: Path, name: str, made: Plan, checkpoint: Path | None = None, corpus: Path | None = None) -> Prepared:
    """Check that all is there, and configure."""
    if name not in MODELS:
        raise BadInput(f"--preset pithtrain: no model {name!r}", f"give --model {' or '.join(MODELS)}")
    if not (root / _TRAINER).is_file():
        raise BadInput(f"--pithtrain {root}: no {_TRAINER} in it", "clone mlc-ai/pith-train, and name its folder")
    short, balance = MODELS[name]
    checkpoint = checkpoint or root / "workspace" / "checkpoints" / name
    corpus = corpus or root / "workspace" / "datasets" / "dclm-baseline" / "toktxt" / short
    steps = sorted(p.name for p in (checkpoint / "torch-dcp").glob("step-*"))
    if not steps:
        raise BadInput(
            f"no checkpoint in {checkpoint}/torch-dcp: routing would not be representative",
            f"make it, in {root}: {_SETUP} {name}",
        )
    if steps[-1].removeprefix("step-").strip("0"):
        raise BadInput(
            f"{checkpoint}/torch-dcp holds {steps[-1]}: the trainer would resume there, past the step to profile",
            "give --checkpoint a folder with step-00000000 alone",
        )
    if not any(corpus.rglob("*.bin")):
        raise BadInput(f"no tokenized corpus (*.bin) in {corpus}", f"make it, in {root}: {_SETUP} {name}")
    script = _SCRIPT.format(
        warmup=made.warmup, steps=made.steps, last=made.warmup + made.steps, corpus=str(corpus), pp=made.pp, ep=made.ep,
        cp=made.cp, model=f"examples/pretrain_lm/{name}", mbs=made.mbs, batch=made.global_batch, seq=made.seq,
        balance=balance, checkpoint=str(checkpoint),
    )  # fmt: skip
    return Prepared(script, root, (checkpoint, corpus))
