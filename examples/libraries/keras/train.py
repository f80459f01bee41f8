"""Keras 3 on PyTorch: a classifier of handwritten digits; it goes on from the newest checkpoint that it finds."""

import glob
import os
import re

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits

keras.utils.set_random_seed(1)
folder = os.environ.get("CHECKPOINT_DIR", "checkpoints")
saved = sorted(glob.glob(f"{folder}/*.keras"))
if saved:
    model, begin = keras.models.load_model(saved[-1]), int(re.findall(r"\d+", saved[-1])[-1])
else:
    begin = 0
    model = keras.Sequential([keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
images, digits = load_digits(return_X_y=True)
model.fit(
    images / 16,
    digits,
    validation_split=0.2,
    initial_epoch=begin,
    epochs=begin + 4,
    batch_size=64,
    callbacks=[keras.callbacks.ModelCheckpoint(folder + "/digits-{epoch:02d}.keras")],
)
