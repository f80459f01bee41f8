"""Which value of a metric is better is read from its name."""

from __future__ import annotations

import math

import pytest

from workbench.metric_names import best_value, smaller_is_better


@pytest.mark.parametrize(
    "name",
    [
        "loss", "train/loss", "val_loss", "valLoss", "trainloss", "reward_loss", "error", "word_error_rate", "wer",
        "eval/wer", "ppl", "top5_err", "err1", "rmse", "mean_squared_error", "negative_log_likelihood", "nll",
        "step_time", "seconds_per_step", "time-per-sample",
    ],
)  # fmt: skip
def test_losses_errors_and_times_are_better_when_smaller(name: str) -> None:
    assert smaller_is_better(name) is True


@pytest.mark.parametrize(
    "name",
    [
        "accuracy", "val/acc", "acc1", "valAcc", "f1", "macro-f1", "mAP", "mean_average_precision", "bleu4", "rougeL",
        "log_likelihood", "episode_reward", "tokens_per_second", "samples/images_per_sec", "iterations per s",
    ],
)  # fmt: skip
def test_scores_and_speeds_are_better_when_larger(name: str) -> None:
    assert smaller_is_better(name) is False


@pytest.mark.parametrize(
    "name", ["lr", "epoch", "learning_rate", "grad_norm", "loss/scale", "terraform", "persons"]
)
def test_other_names_say_nothing(name: str) -> None:
    assert smaller_is_better(name) is None


def test_the_best_value_leaves_out_what_is_no_number() -> None:
    assert best_value("loss", [0.5, None, math.nan, 0.25]) == 0.25
    assert best_value("accuracy", [0.5, None, math.nan, 0.25]) == 0.5
    assert best_value("lr", [0.5, 0.25]) is None
    assert best_value("loss", [None, math.nan]) is None
    assert best_value("loss", [-math.inf, 0.5, math.inf]) == 0.5
    assert best_value("accuracy", [math.inf, -math.inf]) is None
