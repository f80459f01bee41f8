"""XGBoost: trees for handwritten digits, with what it prints each round and its own checkpoints."""

import os

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

images, digits = load_digits(return_X_y=True)
train, held_out, train_digits, held_out_digits = train_test_split(images, digits, random_state=1)
train = xgboost.DMatrix(train, train_digits)
held_out = xgboost.DMatrix(held_out, held_out_digits)

folder = os.environ.get("CHECKPOINT_DIR", "checkpoints")
os.makedirs(folder, exist_ok=True)
xgboost.train(
    {
        "objective": "multi:softprob",
        "num_class": 10,
        "eta": 0.2,
        "max_depth": 3,
        "eval_metric": ["mlogloss", "merror"],
    },
    train,
    num_boost_round=20,
    evals=[(train, "train"), (held_out, "eval")],
    callbacks=[xgboost.callback.TrainingCheckPoint(folder, name="digits", interval=5)],
)
