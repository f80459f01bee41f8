"""Which of two values of a metric is better, as far as the metric's name says: less of a loss, more of a score."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

SMALLER_IS_BETTER: Final = frozenset((
    "loss", "error", "errors", "err", "perplexity", "ppl", "mae", "mse", "rmse", "mape", "wer", "cer", "ter", "eer",
    "der", "nll", "bpc", "bpb", "fid", "ece", "brier", "latency", "time", "seconds",
))  # fmt: skip
LARGER_IS_BETTER: Final = frozenset((
    "accuracy", "acc", "f1", "auc", "auroc", "precision", "recall", "score", "bleu", "rouge", "rougel", "map", "iou",
    "miou", "dice", "reward", "rewards", "r2", "psnr", "ssim", "mrr", "ndcg", "mcc", "kappa", "likelihood", "elbo",
    "throughput",
))  # fmt: skip

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
    parts = {part for text in (last, _CAPITALS.sub(" ", last)) for part in _SEPARATORS.split(text.lower())}
    parts |= {part.rstrip("0123456789") for part in parts}
    if parts & SMALLER_IS_BETTER or any(part.endswith("loss") for part in parts):
        return True
    if parts & LARGER_IS_BETTER:
        return bool(parts & {"negative", "neg"})
    return None


def best_value(name: str, values: Iterable[float | None]) -> float | None:
    """Return the best of some values of a metric; None where none is finite, or the name does not say."""
    smaller = smaller_is_better(name)
    known = [value for value in values if value is not None and math.isfinite(value)]
    if smaller is None or not known:
        return None
    return min(known) if smaller else max(known)
