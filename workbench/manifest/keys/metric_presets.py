"""Ready expressions for what well-known tools print: ``evaluation_metrics: {type: keras}``.

Each preset is a set of groups of ``regex_extractor``; a manifest's own groups are tried before them. Names of
metrics are those that the tools' own examples use, since an expression binds names that it knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from workbench.spec import MetricGroup, TypedValue
from workbench.values import dataclass

_KNOWN: Final = (
    "loss", "train_loss", "train_loss_step", "train_loss_epoch", "val_loss", "valid_loss", "test_loss",
    "acc", "accuracy", "train_acc", "val_acc", "train_accuracy", "val_accuracy", "test_acc", "test_accuracy",
    "mae", "val_mae", "mse", "val_mse", "auc", "val_auc", "f1", "precision", "recall", "perplexity", "ppl",
    "reward", "lr", "learning_rate", "grad_norm",
)  # fmt: skip
"""Names of metrics that are recognised where a tool prints ``name: value`` or ``name=value``."""

_HUGGING_FACE: Final = (
    "loss", "grad_norm", "learning_rate", "accuracy", "f1", "precision", "recall", "perplexity", "bleu", "rouge1",
    "rougeL", "wer", "runtime", "samples_per_second", "steps_per_second",
)  # fmt: skip

_REST: Final = r"[^\n]*?"


@dataclass(frozen=True, slots=True)
class Preset:
    """What one tool prints."""

    groups: Mapping[str, MetricGroup]
    line_lookahead: int
    about: str


def _anywhere(names: Iterable[str], pattern: str) -> str:
    """Return an expression that looks ahead in the line for each of some values, whatever their order.

    A look-ahead that may also match nothing is never tried twice; an optional one doubles the work of those before it.
    ``pattern`` has ``NAME`` for the name and ``VALUE`` for where its value stands.
    """
    return "".join(
        f"(?={pattern.replace('NAME', name).replace('VALUE', '%{FLOAT:' + name + '}')}|)" for name in names
    )


def _group(regex: str, scalars: Iterable[str], **etimes: str) -> MetricGroup:
    return MetricGroup(
        regex=regex,
        scalars={name: TypedValue("FLOAT", f"${name}") for name in scalars},
        etimes={
            name: TypedValue("FLOAT" if kind == "FLOAT" else "INT", f"${name}")
            for name, kind in etimes.items()
        },
    )


def _dictionary(prefix: str) -> str:
    """Return what looks for each metric of a printed dictionary, and for its epoch."""
    return _anywhere(_HUGGING_FACE, rf"{_REST}'{prefix}NAME': '?VALUE") + (
        rf"(?={_REST}'epoch': '?%{{FLOAT:epoch}}|)"
    )


_COLON: Final = _anywhere(_KNOWN, _REST + r"\bNAME: VALUE")
_EQUALS: Final = _anywhere(_KNOWN, _REST + r"[\s,\[]NAME=VALUE")

PRESETS: Final[Mapping[str, Preset]] = {
    "caffe": Preset(
        {
            "test": _group(
                r"%{GLOG_STAMP}[^\n]*Iteration %{INT:iteration}, Testing[^\n]*\n"
                r"(?:[^\n]*Test net output #\d+: accuracy = %{FLOAT:accuracy}[^\n]*\n)?"
                r"[^\n]*Test net output #\d+: loss = %{FLOAT:loss}",
                ("accuracy", "loss"),
                iteration="INT",
            ),
            "train": _group(
                r"%{GLOG_STAMP}[^\n]*Iteration %{INT:iteration}[^\n,]*(?:\([^\n)]*\))?, loss = %{FLOAT:loss}",
                ("loss",),
                iteration="INT",
            ),
            "solver": _group(
                r"%{GLOG_STAMP}[^\n]*Iteration %{INT:iteration}, lr = %{FLOAT:lr}", ("lr",), iteration="INT"
            ),
        },
        3,
        "Caffe's log of training and testing",
    ),
    "keras": Preset(
        {
            "epoch": _group(
                r"(?:Epoch (?P<epoch>\d+)/\d+[^\n]*\n)?"
                rf"{_REST}(?<!\d)(?P<batch>\d+)/(?P=batch)(?!\d)(?![^\n]*\bETA\b)(?=[^\n]*\b\w+: ){_COLON}",
                _KNOWN,
                epoch="INT",
            )
        },
        2,
        "the line that Keras ends an epoch with; the epoch's number where it stands right above (verbose=2)",
    ),
    "lightning": Preset(
        {"epoch": _group(rf"{_REST}\bEpoch %{{INT:epoch}}:\s*100%(?=[^\n]*=){_EQUALS}", _KNOWN, epoch="INT")},
        1,
        "the progress bar of PyTorch Lightning as each epoch ends",
    ),
    "huggingface": Preset(
        {
            "eval": _group(rf"(?={_REST}\{{'eval_){_dictionary('eval_')}", _HUGGING_FACE, epoch="FLOAT"),
            "train": _group(
                rf"(?={_REST}\{{'(?:loss|train_)){_dictionary('(?:train_)?')}", _HUGGING_FACE, epoch="FLOAT"
            ),
        },
        1,
        "the dictionaries that the Trainer of Hugging Face prints, of training and of evaluation",
    ),
    "tqdm": Preset(
        {
            "bar": _group(
                rf"{_REST}%{{INT:percent}}%\|[^|\n]*\|\s*(?P<step>\d+)/(?P<total>\d+) \[{_EQUALS}",
                ("percent", *_KNOWN),
                step="INT",
            )
        },
        1,
        "tqdm's bar, with what its postfix says",
    ),
}
"""By name."""
