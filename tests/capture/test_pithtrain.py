"""The PithTrain preset: a trainer that is a stand-in, and inputs that are missing one after the other."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from stepscope.capture import watch
from stepscope.cli.main import run


@pytest.fixture
def clone(tmp_path) -> Path:
    trainer = tmp_path / "pith" / "pithtrain" / "tasks" / "pretrain_lm.py"
    trainer.parent.mkdir(parents=True)
    trainer.write_text("")
    return tmp_path / "pith"


def dry(clone: Path, *more: str) -> int:
    options = ["--preset", "pithtrain", "--pithtrain", str(clone), "--model", "qwen3-30b-a3b", "--pp", "2", "--ep", "4"]
    return run(["capture", "run", "--dry-run", "-o", "cap", *options, *more])


def test_what_is_missing_is_named_with_the_step_that_makes_it(clone, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert dry(tmp_path) == 2 and "clone mlc-ai/pith-train" in capsys.readouterr().err
    assert dry(clone) == 2
    said = capsys.readouterr().err
    assert "no checkpoint in" in said and "pithtrain.tasks.convert_checkpoint (hf2dcp)" in said
    older = clone / "benchmarks" / "pretraining" / "qwen3-30b-a3b" / "setup.py"
    older.parent.mkdir(parents=True)
    older.write_text("")
    assert dry(clone) == 2 and "python3 benchmarks/pretraining/qwen3-30b-a3b/setup.py" in capsys.readouterr().err
    skill = clone / ".agents" / "skills" / "setup-benchmark-inputs" / "scripts" / "launch_setup.sh"
    skill.parent.mkdir(parents=True)
    skill.write_text("")
    assert dry(clone) == 2 and "launch_setup.sh --model qwen3-30b-a3b" in capsys.readouterr().err
    steps = clone / "workspace" / "checkpoints" / "qwen3-30b-a3b" / "torch-dcp"
    (steps / "step-00000000").mkdir(parents=True)
    assert dry(clone) == 2 and "no tokenized corpus" in capsys.readouterr().err
    corpus = clone / "workspace" / "datasets" / "dclm-baseline" / "toktxt" / "qwen3"
    corpus.mkdir(parents=True)
    (corpus / "shard.bin").write_text("")
    assert dry(clone) == 0
    text = capsys.readouterr().out
    assert "--nproc-per-node=8" in text and f"{tmp_path}/cap/pithtrain_capture.py" in text and f"cd {clone}" in text
    for line in ("nsys_start = 5", "max_steps = 6", "micro_batch_size = 1", "annotate.common_stop()"):
        assert line in text
    (steps / "step-00000100").mkdir()
    assert dry(clone) == 2 and "would resume there, past the step to profile" in capsys.readouterr().err
    (steps / "step-00000100").rmdir()
    (steps / "step-00000000").rename(steps / "00000000")  # as it is named since
    assert dry(clone) == 0
    capsys.readouterr()
    (steps / "00000006").mkdir()
    assert dry(clone) == 2 and "give --checkpoint a folder with 00000000 alone" in capsys.readouterr().err


#: The configuration of the trainer in three states of its repository: only these names may be set.
CONFIGURATIONS = {
    "cfg.training.dataset": (["distributed", "training"], ["dataset"]),
    "cfg.data.dataset": (["distributed", "training", "data"], []),
    "cfg.dataset": (["distributed", "training", "dataset"], []),
}
TRAINER = """
class Distributed:
    __slots__ = ("pipeline_parallel_size", "expert_parallel_size", "context_parallel_size")
class Training:
    __slots__ = (
        "model", "optimizer", "scheduler", "lr", "max_steps", "sequence_length", "micro_batch_size",
        "global_batch_size", "moe_load_balance_type", "moe_load_balance_coef", "save_location",
        "nsys_start", "nsys_stop", *{more},
    )
class Data:
    __slots__ = ("dataset",)
class PretrainLMCfg:
    __slots__ = {own}
    def __init__(self):
        self.distributed, self.training = Distributed(), Training()
        if "data" in self.__slots__:
            self.data = Data()
def launch(cfg):
    print(cfg.training.model, {corpus}, cfg.training.global_batch_size)
"""


@pytest.mark.parametrize("corpus", CONFIGURATIONS)
def test_its_script_configures_every_trainer(clone, tmp_path, monkeypatch, capsys, corpus):
    import stepscope.annotate
    from stepscope.capture.pithtrain import prepare
    from stepscope.capture.plan import Request, plan

    (clone / "c" / "torch-dcp" / "step-00000000").mkdir(parents=True)
    (clone / "d").mkdir()
    (clone / "d" / "x.bin").write_text("")
    made = plan(Request(pp=2, ep=4, layers=48))
    ready = prepare(clone, "qwen3-30b-a3b", made, clone / "c", clone / "d")
    own, more = CONFIGURATIONS[corpus]
    trainer = types.ModuleType("pithtrain.tasks.pretrain_lm")
    exec(TRAINER.format(own=own, more=more, corpus=corpus), trainer.__dict__)
    builders = types.ModuleType("pithtrain.modules.training")
    builders.make_adamw_optimizer = builders.make_constant_scheduler = None
    for module in (types.ModuleType("pithtrain"), types.ModuleType("pithtrain.tasks"),
                   types.ModuleType("pithtrain.modules"), trainer, builders):  # fmt: skip
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(stepscope.annotate, "common_stop", lambda: None)
    exec(compile(ready.script, "pithtrain_capture.py", "exec"), {"__name__": "__main__"})
    model = "examples/pretrain_lm/qwen3-30b-a3b" + ("/config.json" if corpus == "cfg.training.dataset" else "")
    assert capsys.readouterr().out.split() == [model, str(clone / "d"), str(made.global_batch)]


def test_it_does_not_guess_the_mesh(clone, capsys):
    options = ["--preset", "pithtrain", "--pithtrain", str(clone), "--model", "qwen3-30b-a3b"]
    assert run(["capture", "run", "--dry-run", *options]) == 2
    assert "--preset pithtrain: no --pp and no --ep, and it does not guess the mesh" in capsys.readouterr().err
    assert run(["capture", "run", "--dry-run", *options, "--pp", "2"]) == 2
    assert "no --ep, and it does not" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "seq"), [([], 2048), (["--seq", "4096"], 4096)])
def test_its_sequence_length_is_its_seed_s(clone, tmp_path, monkeypatch, capsys, more, seq):
    monkeypatch.chdir(tmp_path)
    (clone / "c" / "torch-dcp" / "step-00000000").mkdir(parents=True)
    (clone / "d").mkdir()
    (clone / "d" / "x.bin").write_text("")
    assert dry(clone, "--checkpoint", str(clone / "c"), "--corpus", str(clone / "d"), *more) == 0
    text = capsys.readouterr().out
    assert f"training.sequence_length = {seq}\n" in text and "STEPSCOPE_CAPTURE_HOOKS" not in text


def test_only_nsys(clone, capsys):
    assert dry(clone, "--backend", "torch") == 2 and "starts nsys only" in capsys.readouterr().err


def test_the_telling_line_of_a_log(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "step 0: loss 5\nrank 1: --die-at 3\n"
        "W1115 04:13:58.8 32557 torch/distributed/elastic/api.py:1] Sending process 3 closing signal SIGTERM\n"
        "E1115 04:13:59.1 32557 torch/distributed/elastic/api.py:2] failed (exitcode: 1) local_rank: 0\n"
        "Traceback (most recent call last):\n  File \"x.py\", line 3, in <module>\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "============\ntrain.py FAILED\n------------\nThe target application exited with non-zero code 1\n"
    )  # fmt: skip
    assert watch.reason(log) == "rank 1: --die-at 3"
    assert watch.reason(tmp_path / "none") == "no log"
