"""transformers' Trainer with models of its own (Qwen3, GPT-2), random weights."""

from __future__ import annotations

import json
import logging
import os
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
import transformers
from common import DEVICE, ON_CPU, SCRATCH, Steps, main, settings, sized

FAULTS = {
    "eager-attention": "A1", "float": "A2", "gradient-checkpointing": "A4", "optimizer-loop": "A7",
    "smoothing-fused": "twin", "label-smoothing": "A8", "gpt2-50304": "twin", "gpt2-50257": "A9",
    "second-forward": "A12",
    "save-every-3": "C1", "evaluate-every-3": "C2", "empty-cache-every-4": "C4", "load-weights": "C6",
    "norms-by-item": "B1", "python-in-callback": "B7",
    "compiled-dynamic": "twin", "compiled-longer-from-step-8": "C5",
}  # fmt: skip
SEQ, BATCH, VOCABULARY = sized(1024, 16), sized(16, 2), sized(65536, 64)


class Texts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random tokens; batches may differ in length."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.tokens = torch.randint(0, sized(50257, 64), (64, 2 * SEQ))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        step, length = i // BATCH, SEQ
        if self.fault.startswith("compiled") and step >= 8:  # a longer text is compiled for, in the middle of the run
            length = SEQ + SEQ // 4
        tokens = self.tokens[i % 64, :length]
        return {"input_ids": tokens, "labels": tokens}


class Ends(transformers.TrainerCallback):
    """Tells our clock where steps are."""

    def __init__(self, steps: Steps, fault: str) -> None:
        self.steps, self.fault = steps, fault
        self.told: list[dict[str, Any]] = [{"step": n, "loss": n / 7, "rate": 1e-4} for n in range(sized(30_000, 10))]

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.steps.begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.fault == "python-in-callback":  # the whole history is written anew in every step
            self.told.append({"step": state.global_step, "loss": 0.0, "rate": 1e-4})
            json.dumps(self.told, indent=1)
        # Saving and evaluating come after the end of the step: they are timed with the next.
        self.steps.ended()


class Trainer(transformers.Trainer):
    fault = ""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, *args, **kwargs)
        if self.fault == "norms-by-item":
            self.norms = {n: p.grad.norm().item() for n, p in model.named_parameters() if p.grad is not None}
        return loss

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fault == "second-forward":
            (model(**inputs).logits.argmax(-1) == inputs["labels"]).float().mean()
        return super().compute_loss(model, inputs, *args, **kwargs)


def model_of(fault: str) -> Any:
    if fault.startswith("gpt2"):
        vocabulary = sized(int(fault[5:]), 64)
        wide = transformers.GPT2Config(
            vocab_size=vocabulary,
            n_embd=sized(1024, 16),
            n_layer=sized(2, 1),
            n_head=sized(16, 2),
            bos_token_id=0,
            eos_token_id=0,
        )
        return transformers.GPT2LMHeadModel(wide)
    width, heads = sized(1024, 16), sized(16, 2)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=sized(3, 1),
        num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=width // heads,
        max_position_embeddings=4 * SEQ,
        attn_implementation="eager" if fault == "eager-attention" else "sdpa", use_cache=False,
        tie_word_embeddings=True,
    )  # fmt: skip
    if fault != "load-weights":
        with DEVICE:
            return transformers.Qwen3ForCausalLM(config)
    folder = SCRATCH / "qwen3"
    if not folder.exists():
        transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    return transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def smoothed(outputs: Any, labels: torch.Tensor, **_: Any) -> torch.Tensor:
    """Labels are moved instead of logits, which are large; the last has none."""
    after = F.pad(labels, (0, 1), value=-100)[:, 1:]
    return F.cross_entropy(outputs.logits.flatten(0, 1), after.flatten(), label_smoothing=0.1)


def run(fault: str, steps: Steps) -> None:
    settings(tf32=False)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if fault.startswith("compiled"):
        torch._dynamo.reset()
    model = model_of(fault)
    arguments = transformers.TrainingArguments(
        output_dir=str(SCRATCH / "trainer"), max_steps=steps.total, per_device_train_batch_size=BATCH,
        bf16=fault != "float", tf32=None, report_to=[], logging_strategy="no", disable_tqdm=True, use_cpu=ON_CPU,
        gradient_checkpointing=fault == "gradient-checkpointing",
        label_smoothing_factor=0.1 if fault == "label-smoothing" else 0.0,
        save_strategy="steps" if fault == "save-every-3" else "no", save_steps=3, save_total_limit=1,
        eval_strategy="steps" if fault == "evaluate-every-3" else "no", eval_steps=3, per_device_eval_batch_size=BATCH,
        torch_empty_cache_steps=4 if fault == "empty-cache-every-4" else None,
        torch_compile=fault.startswith("compiled"),
    )  # fmt: skip
    adam = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False) if fault == "optimizer-loop" else None
    data = Texts(fault)
    trainer = Trainer(
        model, arguments, train_dataset=data, eval_dataset=torch.utils.data.Subset(data, range(4 * BATCH)),
        callbacks=[Ends(steps, fault)],
        optimizers=(adam, None), compute_loss_func=smoothed if fault == "smoothing-fused" else None,
    )  # fmt: skip
    trainer.fault = fault
    torch._dynamo.config.assume_static_by_default = fault != "compiled-dynamic"
    trainer.train()


if __name__ == "__main__":
    main(run, FAULTS)
