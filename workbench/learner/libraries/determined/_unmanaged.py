"""An experiment that no file describes: what its code says of it counts, and is noted with the job."""

from __future__ import annotations

import json
import os
import re

from workbench.learner.determined_jobs import (
    CONFIG_VARIABLE,
    HPARAMS_VARIABLE,
    NOTED,
    UNMANAGED,
    json_object,
    noted_as,
)
from workbench.learner.report import note
from workbench.learner.secret_names import SECRET_NAME

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

    from .experimental.core_v2 import UnmanagedConfig

KEYS = ("name", "description", "labels", "workspace", "project", "data", "searcher")
"""Attributes of a ``UnmanagedConfig`` that are keys of an experiment, too."""

_SECRET = re.compile(r"%s|(?i:passphrase|credential|pwd|(?:^|[^a-z])keys?$)|[a-z]Key$" % SECRET_NAME)
_OF_TEXT = re.compile(r"(?i)(?:max|min|num|n|total)_(?:\w+_)?tokens|tokeni[sz]\w*")
"""What a model reads is named like that, and is no secret."""


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
    """Note what the code says of its experiment, and the hyperparameters that count, but no secrets among them."""
    values: dict[str, Any] = {name: getattr(config, name, None) for name in NOTED}
    values["hyperparameters"] = " ".join("%s=%s" % item for item in _without_secrets(hparams).items())
    for name, value in values.items():
        if value:
            text = value if isinstance(value, str) else ", ".join(map(str, value))
            note(noted_as(name) + text)


def _without_secrets(value: Any) -> Any:
    """Return a value of JSON without what is a secret by its name, however deep."""
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_secrets(each) for name, each in value.items() if not _is_secret(name)}


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(_OF_TEXT.sub("", name)))


def _plain(value: Any) -> Any:
    """Return a number of another library, or an array, as Python's; what is neither as a text."""
    for method in ("item", "tolist"):
        try:
            found = getattr(value, method)()
        except Exception:  # each library has its own for an array of several elements
            continue
        if type(found) is not type(value):
            return found
    return str(value)
