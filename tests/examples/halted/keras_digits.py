"""Keras 3 on PyTorch, as in the example, that saves every second epoch."""

import glob
import os
import re

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from ledger import Ledger
from sklearn.datasets import load_digits

EPOCHS, BATCHES = 8, 23
ledger = Ledger()


class WriteDown(keras.callbacks.Callback):
    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        ledger.wait_for_halt(self.epoch * BATCHES + batch)

    def on_epoch_end(self, epoch, logs=None):
        ledger.reported((epoch + 1) * BATCHES, epoch + 1, **logs)


class SaveEverySecond(keras.callbacks.ModelCheckpoint):
    def on_epoch_end(self, epoch, logs=None):
        if epoch % 2:
            super().on_epoch_end(epoch, logs)


keras.utils.set_random_seed(1)
folder = os.environ["CHECKPOINT_DIR"]
saved = sorted(glob.glob(f"{folder}/*.keras"))
if saved:
    model, begin = keras.models.load_model(saved[-1]), int(re.findall(r"\d+", saved[-1])[-1])
else:
    begin = 0
    model = keras.Sequential([keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
images, digits = load_digits(return_X_y=True)
ledger.started(begin * BATCHES)
model.fit(
    images / 16,
    digits,
    validation_split=0.2,
    initial_epoch=begin,
    epochs=EPOCHS,
    batch_size=64,
    callbacks=[SaveEverySecond(folder + "/digits-{epoch:02d}.keras"), WriteDown()],
)
