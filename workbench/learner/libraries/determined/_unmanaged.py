"""An experiment that no file describes: what its code says of it counts, and is noted with the job."""

from __future__ import annotations

import json
import os

from workbench.learner.determined_jobs import (
    CONFIG_VARIABLE,
    EXPERIMENT_NOTE,
    HPARAMS_VARIABLE,
    UNMANAGED,
    json_object,
)
from workbench.learner.report import note

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

    from .experimental.core_v2 import UnmanagedConfig

KEYS = ("name", "description", "labels", "workspace", "project", "data", "searcher")
"""Attributes of a ``UnmanagedConfig`` that are keys of an experiment, too."""
NOTED = (
    "name",
    "description",
    "labels",
    "workspace",
    "project",
    "external_experiment_id",
    "external_trial_id",
)
"""Those that people look for. What is in ``data`` may be secret."""


def is_unmanaged() -> bool:
    """Return whether no file describes the experiment of this job."""
    return json_object(os.environ.get(CONFIG_VARIABLE)).get(UNMANAGED) is True


def take_config(config: UnmanagedConfig) -> None:
    """Have this process, and those that it starts, know the experiment as its code describes it.

    Raises:
        TypeError: the hyperparameters are no mapping, or not of values that JSON has.
    """
    described = json_object(os.environ.get(CONFIG_VARIABLE))
    described.update({key: value for key in KEYS if (value := getattr(config, key)) is not None})
    if config.hparams is not None:
        given = dict(config.hparams)
        described["hyperparameters"] = given
        os.environ[HPARAMS_VARIABLE] = json.dumps(given, default=_plain)
    os.environ[CONFIG_VARIABLE] = json.dumps(described, default=_plain)


def note_config(config: UnmanagedConfig, hparams: Mapping[str, Any]) -> None:
    """Note what the code says of its experiment, and the hyperparameters that count."""
    for name in NOTED:
        value = getattr(config, name)
        if value:
            text = value if isinstance(value, str) else ", ".join(map(str, value))
            note("%s%s: %s" % (EXPERIMENT_NOTE, name.replace("_", " "), text))
    if hparams:
        text = " ".join("%s=%s" % item for item in hparams.items())
        note("%shyperparameters: %s" % (EXPERIMENT_NOTE, text))


def _plain(value: Any) -> Any:
    """Return a number of another library as one of Python's; what is none as a text."""
    return value.item() if hasattr(value, "item") else str(value)
