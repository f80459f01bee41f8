"""What the name of a metric says: which of two values is better, and what it is measured on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

SMALLER_IS_BETTER: Final = frozenset((
    "loss", "error", "errors", "err", "perplexity", "ppl", "mae", "mse", "rmse", "mape", "wer", "cer", "ter", "eer",
    "der", "nll", "bpc", "bpb", "fid", "ece", "brier", "latency", "time", "seconds",
))  # fmt: skip
LARGER_IS_BETTER: Final = frozenset((
    "accuracy", "acc", "f1", "auc", "auroc", "precision", "recall", "score", "bleu", "rouge", "rougel", "map", "iou",
    "miou", "dice", "reward", "rewards", "r2", "psnr", "ssim", "mrr", "ndcg", "mcc", "kappa", "likelihood", "elbo",
    "throughput",
))  # fmt: skip

HELD_OUT: Final = frozenset(("val", "valid", "validation", "eval", "test", "dev", "heldout"))
"""Parts of the names of metrics that are measured on data held out from the training."""
_INSTRUMENTS: Final = frozenset((
    "lr", "learning", "time", "seconds", "latency", "throughput", "memory", "mem", "norm", "epoch", "step", "flos",
    "flops",
))  # fmt: skip
"""Parts of the names of what is watched and not aimed at."""

_AMOUNTS: Final = frozenset(("steps", "tokens", "batch", "batches", "samples", "std"))
"""Parts of the names of what is counted or spread."""

_CAPITALS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")
_SPEED: Final = re.compile(r"(?:^|[^a-z])per[^a-z]*(?:s|secs?|seconds?|mins?|minutes?|hours?)(?:$|[^a-z])")


def smaller_is_better(name: str) -> bool | None:
    """Say whether smaller values of a metric are better; None where its name does not say.

    The last part of the name counts: ``train/word_error_rate`` is judged by ``word``, ``error`` and ``rate``. A name
    with parts of both kinds, such as ``reward_loss``, is that of a loss; what is counted per time is a speed.
    """
    last = name.rpartition("/")[2]
    if _SPEED.search(_CAPITALS.sub(" ", last).lower()):
        return False
    parts = _parts(last)
    if parts & SMALLER_IS_BETTER or any(part.endswith("loss") for part in parts):
        return True
    if parts & LARGER_IS_BETTER:
        return bool(parts & {"negative", "neg"})
    return None


def goal_of(name: str) -> Literal["minimize", "maximize"]:
    """Return what is done with a metric where nobody says it: one whose name does not say so is minimized."""
    return "maximize" if smaller_is_better(name) is False else "minimize"


def main_metrics(names: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the metrics that a person looks at first: losses, then what else tells good from bad, then the rest.

    Within each the training comes before what is held out; what only accompanies it (times, learning rate) comes last.
    """
    return tuple(sorted(names, key=_main_key)[:most])


@lru_cache(maxsize=4096)
def is_held_out(name: str) -> bool:
    """Say whether a metric is measured on data held out from the training, as far as its name says.

    What only says how that went, such as ``eval_steps`` and ``valid_tokens``, is no such metric.
    """
    parts = _parts(name)
    return bool(parts & (HELD_OUT | {"evaluation"})) and not parts & (_INSTRUMENTS | _AMOUNTS)


def goal_metric(names: Iterable[str]) -> str | None:
    """Return the metric by which jobs are told good from bad: one measured on data held out, if there is any.

    One whose name says which values are better comes first, what only accompanies the others last. None of none.
    """

    def key(name: str) -> tuple[bool, bool, bool, tuple[int, bool, str]]:
        main = _main_key(name)
        return main[0] == 3, smaller_is_better(name) is None, not main[1], main

    return min(names, key=key, default=None)


def _main_key(name: str) -> tuple[int, bool, str]:
    parts = _parts(name.rpartition("/")[2])
    if parts & _INSTRUMENTS or _SPEED.search(_CAPITALS.sub(" ", name).lower()):
        rank = 3
    elif any(part.endswith("loss") for part in parts):
        rank = 0
    else:
        rank = 1 if smaller_is_better(name) is not None else 2
    return rank, is_held_out(name), name.lower()


def _parts(name: str) -> set[str]:
    parts = {part for text in (name, _CAPITALS.sub(" ", name)) for part in _SEPARATORS.split(text.lower())}
    return parts | {part.rstrip("0123456789") for part in parts}


def best_value(name: str, values: Iterable[float | None]) -> float | None:
    """Return the best of some values of a metric; None where none is finite, or the name does not say."""
    smaller = smaller_is_better(name)
    known = [value for value in values if value is not None and math.isfinite(value)]
    if smaller is None or not known:
        return None
    return min(known) if smaller else max(known)
