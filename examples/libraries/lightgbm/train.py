"""LightGBM: trees for handwritten digits, with what it prints each round. It has no checkpoints of its own."""

import lightgbm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

images, digits = load_digits(return_X_y=True)
train, held_out, train_digits, held_out_digits = train_test_split(images, digits, random_state=1)
train = lightgbm.Dataset(train, train_digits)
held_out = lightgbm.Dataset(held_out, held_out_digits, reference=train)

lightgbm.train(
    {
        "objective": "multiclass",
        "num_class": 10,
        "metric": ["multi_logloss", "multi_error"],
        "verbosity": -1,
        "seed": 1,
    },
    train,
    num_boost_round=20,
    valid_sets=[train, held_out],
    valid_names=["train", "valid"],
    callbacks=[lightgbm.log_evaluation(1)],
)
