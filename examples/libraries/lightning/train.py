"""Lightning: a classifier of handwritten digits, with its own logger, bar and checkpoints."""

import glob
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch):
        images, digits = batch
        loss = functional.cross_entropy(self.layers(images), digits)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch):
        images, digits = batch
        scores = self.layers(images)
        self.log("val_loss", functional.cross_entropy(scores, digits), prog_bar=True)
        self.log("val_accuracy", (scores.argmax(1) == digits).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


lightning.seed_everything(1)
data = load_digits()
everything = TensorDataset(torch.tensor(data.data / 16).float(), torch.tensor(data.target))
train, held_out = random_split(everything, [1437, 360])
folder = os.environ.get("CHECKPOINT_DIR", "checkpoints")
trainer = lightning.Trainer(
    max_epochs=4,
    accelerator="cpu",
    log_every_n_steps=4,
    callbacks=[ModelCheckpoint(folder, monitor="val_loss", save_top_k=-1)],
)
last = max(glob.glob(f"{folder}/*.ckpt"), key=os.path.getmtime, default=None)
trainer.fit(Digits(), DataLoader(train, 64, shuffle=True), DataLoader(held_out, 360), ckpt_path=last)
