"""transformers' Trainer and its own Qwen3 model, random weights. MICRO micro-batches for each step."""

import sys

import torch
import transformers

given = sys.argv[1:] + ["64", "9", "2", "32", "2", "trainer-out"][len(sys.argv) - 1 :]
size, steps, batch, seq, micro = (int(a) for a in given[:5])
config = transformers.Qwen3Config(
    vocab_size=512, hidden_size=size, intermediate_size=3 * size, num_hidden_layers=2 if size < 256 else 8,
    num_attention_heads=4, num_key_value_heads=2, head_dim=size // 4, max_position_embeddings=seq,
)  # fmt: skip
torch.manual_seed(0)
model = transformers.Qwen3ForCausalLM(config)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        tokens = torch.randint(0, 512, (seq,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


arguments = transformers.TrainingArguments(
    output_dir=given[5], max_steps=steps, per_device_train_batch_size=batch,
    gradient_accumulation_steps=micro, bf16=torch.cuda.is_available(), report_to=[], save_strategy="no",
    logging_strategy="no", disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
)  # fmt: skip
transformers.Trainer(model, arguments, train_dataset=Data()).train()
