"""Hugging Face's Trainer: a tiny GPT-2 learns to count. Nothing is downloaded."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WORDS, LENGTH = 32, 16


def sentences(count, seed):
    """Sentences that count upwards from a random word."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(WORDS, (count, 1), generator=generator)
    words = (starts + torch.arange(LENGTH)) % WORDS
    return [{"input_ids": row, "labels": row} for row in words]


torch.manual_seed(1)
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
)
arguments = TrainingArguments(
    output_dir=os.environ.get("CHECKPOINT_DIR", "checkpoints"),
    num_train_epochs=3,
    per_device_train_batch_size=16,
    learning_rate=1e-2,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="epoch",
    use_cpu=True,
)
trainer = Trainer(model, arguments, train_dataset=sentences(160, 1), eval_dataset=sentences(32, 2))
folder = arguments.output_dir
is_resumed = os.path.isdir(folder) and any(name.startswith("checkpoint-") for name in os.listdir(folder))
trainer.train(resume_from_checkpoint=is_resumed)
