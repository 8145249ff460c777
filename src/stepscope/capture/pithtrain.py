"""The PithTrain preset: its trainer by its own configuration, set for a capture.

5 warm-up steps and 1 profiled, micro-batch 1, a small learning rate, the released checkpoint loaded (so that routing is
representative) and never saved. What is missing is an error that names the step that makes it. The trainer starts and
stops the profiler itself, without waiting for other ranks; `annotate.common_stop` makes its stop a common one.

Written from several states of mlc-ai/pith-train, which differ in where the corpus is set (`cfg.data.dataset`,
`cfg.dataset` or `cfg.training.dataset`), in whether a model is a folder or its config.json, and in the names of
checkpoints (`step-00000000` or `00000000`). The global batch is the same number in all of them: micro-batches · world /
(pp · cp).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stepscope.capture.plan import Plan
from stepscope.errors import BadInput

#: Our name of a model → PithTrain's name of its corpus, and how it balances experts.
MODELS = {"deepseek-v2-lite": ("deepseek-v2", "sequence"), "qwen3-30b-a3b": ("qwen3", "global-batch")}
#: The sequence length of its own benchmark.
SEQ = 2048
_TRAINER = "pithtrain/tasks/pretrain_lm.py"
#: What makes the inputs, by the file that does it; the first that a clone has.
_SETUP = {
    ".agents/skills/setup-benchmark-inputs/scripts/launch_setup.sh": "bash {} --model {name}",
    "benchmarks/pretraining/{name}/setup.py": "python3 {}",
}
_ITSELF = "its tasks pithtrain.tasks.convert_checkpoint (hf2dcp) and pithtrain.tasks.tokenize_corpus"
#: A checkpoint's folder, by the number of steps done.
_STEP = re.compile(r"(?:step-)?(\d{8})")

_SCRIPT = '''"""Made by stepscope capture: PithTrain's trainer, {warmup} warm-up steps and {steps} profiled."""

from pathlib import Path

from pithtrain.modules.training import make_adamw_optimizer, make_constant_scheduler
from pithtrain.tasks.pretrain_lm import PretrainLMCfg, launch
from stepscope import annotate

cfg = PretrainLMCfg()
of_training = hasattr(type(cfg.training), "dataset")  # as it was at first, when a model was named by its config.json
holder = cfg.data if hasattr(type(cfg), "data") else cfg.training if of_training else cfg
holder.dataset = Path({corpus!r})
cfg.distributed.pipeline_parallel_size = {pp}
cfg.distributed.expert_parallel_size = {ep}
cfg.distributed.context_parallel_size = {cp}
training = cfg.training
training.model = Path({model!r}, "config.json") if of_training else Path({model!r})
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
    steps = sorted((int(m[1]), p.name) for p in (checkpoint / "torch-dcp").glob("*") if (m := _STEP.fullmatch(p.name)))
    if not steps:
        raise BadInput(
            f"no checkpoint in {checkpoint}/torch-dcp: routing would not be representative",
            f"make it, in {root}: {_setup(root, name)}",
        )
    if steps[-1][0]:
        raise BadInput(
            f"{checkpoint}/torch-dcp holds {steps[-1][1]}: the trainer would resume there, past the step to profile",
            f"give --checkpoint a folder with {steps[0][1].replace(f'{steps[0][0]:08d}', '00000000')} alone",
        )
    if not any(corpus.rglob("*.bin")):
        raise BadInput(f"no tokenized corpus (*.bin) in {corpus}", f"make it, in {root}: {_setup(root, name)}")
    script = _SCRIPT.format(
        warmup=made.warmup, steps=made.steps, last=made.warmup + made.steps, corpus=str(corpus), pp=made.pp, ep=made.ep,
        cp=made.cp, model=f"examples/pretrain_lm/{name}", mbs=made.mbs, batch=made.global_batch, seq=made.seq,
        balance=balance, checkpoint=str(checkpoint),
    )  # fmt: skip
    return Prepared(script, root, (checkpoint, corpus))


def _setup(root: Path, name: str) -> str:
    """The command of this clone that makes checkpoint and corpus."""
    for file, command in _SETUP.items():
        path = file.replace("{name}", name)
        if (root / path).is_file():
            return command.format(path, name=name)
    return _ITSELF
