"""Lightning, as in the example, that saves in the middle of its epochs; what its loggers get is written down."""

import glob
import os

import lightning
import torch
from ledger import Ledger
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split

ledger = Ledger()


class WriteDown(Logger):
    name = "ledger"
    version = ""

    def log_hyperparams(self, *given, **more):
        pass

    def log_metrics(self, metrics, step=None):
        values = {name: value for name, value in metrics.items() if name != "epoch"}
        if values:
            ledger.reported(trainer.global_step, step, **values)


class Wait(Callback):
    def on_train_start(self, trainer, module):
        ledger.started(trainer.global_step)

    def on_train_batch_start(self, trainer, module, batch, index):
        ledger.wait_for_halt(trainer.global_step)


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
folder = os.environ["CHECKPOINT_DIR"]
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    log_every_n_steps=2,
    logger=[TensorBoardLogger(os.getcwd()), WriteDown()],
    callbacks=[ModelCheckpoint(folder, every_n_train_steps=10, save_top_k=-1), Wait()],
    num_sanity_val_steps=0,
)
last = max(glob.glob(f"{folder}/*.ckpt"), key=os.path.getmtime, default=None)
trainer.fit(Digits(), DataLoader(train, 64, shuffle=True), DataLoader(held_out, 360), ckpt_path=last)
