"""Trains a Trial class by the settings of the experiment's file: ``python3 -m determined.exec.harness MODULE:CLASS``.

Only ``PyTorchTrial`` is run, by the ``Trainer`` of Determined's own wheel.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys

# Relative: this package is imported by its last name.
from .. import LOG_FORMAT, _wheel, get_cluster_info  # noqa: TID252

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Sequence

logger = logging.getLogger("determined")


class NotTrainable(Exception):
    """A class cannot be trained here."""


def main(words: Sequence[str]) -> int:
    """Train a class; return the exit code."""
    if len(words) != 1 or ":" not in words[0]:
        print("usage: python3 -m determined.exec.harness MODULE:CLASS", file=sys.stderr)
        return 2
    info = get_cluster_info()
    is_debugged = info is not None and info.trial._debug
    logging.basicConfig(level=logging.DEBUG if is_debugged else logging.INFO, format=LOG_FORMAT)
    try:
        _train(words[0])
    except NotTrainable as error:
        print("determined.exec.harness: %s" % error, file=sys.stderr)
        return 2
    return 0


def _train(entrypoint: str) -> None:
    info = get_cluster_info()
    if info is None:
        raise NotTrainable("this runs in a job of an experiment only")
    if _wheel.folder() is None:
        raise NotTrainable(_wheel.NEEDED)
    pytorch: Any = importlib.import_module("determined.pytorch")  # the wheel's
    trial_class = _class_of(entrypoint)
    if not issubclass(trial_class, pytorch.PyTorchTrial):
        raise NotTrainable("%s is not a PyTorchTrial; other Trial classes do not run here" % entrypoint)
    config = info.trial._config
    batch_size = info.trial.hparams.get("global_batch_size")
    optimizations = config["optimizations"]
    with pytorch.init(
        hparams=info.trial.hparams,
        exp_conf=config,
        aggregation_frequency=int(optimizations["aggregation_frequency"]),
    ) as context:
        context._set_default_gradient_compression(bool(optimizations["gradient_compression"]))
        context._set_default_average_aggregated_gradients(bool(optimizations["average_aggregated_gradients"]))
        context._set_is_pre_trainer()
        logger.info("training %s for %s", trial_class.__name__, _length_of(config))

        def period(name: str) -> Any:
            return pytorch.TrainUnit._from_values(
                **config[name], global_batch_size=None if batch_size is None else int(batch_size)
            )

        pytorch.Trainer(trial_class(context), context).fit(
            checkpoint_period=period("min_checkpoint_period"),
            validation_period=period("min_validation_period"),
            reporting_period=pytorch.Batch(int(config["scheduling_unit"])),
            checkpoint_policy=config["checkpoint_policy"],
            latest_checkpoint=info.latest_checkpoint,
            step_zero_validation=bool(config["perform_initial_validation"]),
            test_mode=False,
            profiling_enabled=bool(config["profiling"]["enabled"]),
        )


def _length_of(config: dict[str, Any]) -> str:
    length = (config.get("searcher") or {}).get("max_length")
    if length is None:
        raise NotTrainable(
            "searcher.max_length is missing: a Trial class does not say how long it trains;"
            " write max_length: {batches: N}"
        )
    return (
        " ".join("%s %s" % (number, unit) for unit, number in length.items())
        if isinstance(length, dict)
        else str(length)
    )


def _class_of(entrypoint: str) -> Any:
    module_name, _, name = entrypoint.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise NotTrainable("%s cannot be loaded: %s" % (entrypoint, error)) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
