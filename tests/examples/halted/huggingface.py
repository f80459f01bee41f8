"""Hugging Face's Trainer, as in the example, that saves in the middle of its epochs and evaluates elsewhere."""

import os

import torch
from ledger import Ledger
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

WORDS, LENGTH = 32, 16
ledger = Ledger()


class WriteDown(TrainerCallback):
    def on_train_begin(self, args, state, control, **more):
        ledger.started(state.global_step)

    def on_log(self, args, state, control, logs=None, **more):
        ledger.reported(state.global_step, logs["epoch"], **{n: v for n, v in logs.items() if n != "epoch"})

    def on_step_begin(self, args, state, control, **more):
        ledger.wait_for_halt(state.global_step)


def sentences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(WORDS, (count, 1), generator=generator)
    words = (starts + torch.arange(LENGTH)) % WORDS
    return [{"input_ids": row, "labels": row} for row in words]


torch.manual_seed(1)
sizes = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **sizes))
folder = os.environ["CHECKPOINT_DIR"]
arguments = TrainingArguments(
    output_dir=folder,
    num_train_epochs=3,
    per_device_train_batch_size=16,
    learning_rate=1e-2,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=3,
    save_strategy="steps",
    save_steps=4,
    use_cpu=True,
)
trainer = Trainer(
    model,
    arguments,
    train_dataset=sentences(160, 1),
    eval_dataset=sentences(32, 2),
    callbacks=[WriteDown()],
)
trainer.train(resume_from_checkpoint=any(name.startswith("checkpoint-") for name in os.listdir(folder)))
