"""transformers' Trainer with a Qwen3 model of its own, by DistributedDataParallel: three micro-batches a step."""

from __future__ import annotations

import logging
import os
import time
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
import transformers
from common import DEVICE, ON_CPU, SCRATCH, Steps, settings, sized
from ranks import RANK, main, mine

FAULTS = {
    "sync-each-batch": "D1", "buckets-of-one-mb": "D2", "larger-batch-on-rank-1": "D4", "slow-data-on-rank-2": "D6",
    "objects-every-step": "D7",
}  # fmt: skip
SEQ, BATCH, VOCABULARY, MICRO = sized(1024, 16), sized(6, 2), sized(8192, 64), 3


class Texts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, fault: str) -> None:
        self.slow = mine(fault, "slow-data")
        self.tokens = torch.randint(0, VOCABULARY, (64, SEQ))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        if self.slow:
            time.sleep(0.004)
        return {"input_ids": self.tokens[i % 64], "labels": self.tokens[i % 64]}


class Ends(transformers.TrainerCallback):
    """Tells our clock where steps are."""

    def __init__(self, fault: str, steps: Steps) -> None:
        self.fault, self.steps = fault, steps

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.steps.begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.fault == "objects-every-step":
            told: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(told, {"rank": RANK, "step": state.global_step, "at": time.time()})
            dist.barrier()
        self.steps.ended()


def larger(rows: list[dict[str, torch.Tensor]]) -> Any:
    return transformers.default_data_collator(rows + rows[: len(rows) // 2])


def run(fault: str, steps: Steps) -> None:
    settings()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    width, heads = sized(512, 16), sized(8, 2)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=sized(4, 1),
        num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=width // heads,
        max_position_embeddings=4 * SEQ, attn_implementation="sdpa", use_cache=False, tie_word_embeddings=True,
    )  # fmt: skip
    with DEVICE:
        model = transformers.Qwen3ForCausalLM(config)
    kwargs: dict[str, Any] = {}
    if fault == "sync-each-batch":
        kwargs["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    arguments = transformers.TrainingArguments(
        output_dir=str(SCRATCH / "ranks_trainer"), max_steps=steps.total, per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=MICRO, bf16=True, report_to=[], disable_tqdm=True, use_cpu=ON_CPU,
        logging_strategy="steps" if fault == "objects-every-step" else "no", logging_steps=1,
        save_strategy="no", ddp_bucket_cap_mb=1 if fault == "buckets-of-one-mb" else None,
        ddp_find_unused_parameters=False, ddp_broadcast_buffers=False, **kwargs,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=Texts(fault), callbacks=[Ends(fault, steps)],
        data_collator=larger if mine(fault, "larger-batch") else transformers.default_data_collator,
    )  # fmt: skip
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()


if __name__ == "__main__":
    main(run, FAULTS)
