"""Tables as pandas' data frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.errors import ConfigError


def data_frame(records: Iterable[Mapping[str, Any]]) -> Any:
    """Return a ``pandas.DataFrame`` of records; its columns are their keys, in the order in which they first come.

    Raises:
        ConfigError: pandas is not installed.
    """
    from importlib import import_module

    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ConfigError(
            "a data frame needs pandas, which is not installed",
            hint="pip install pandas; rows() and records() give the same as lists of dictionaries",
        ) from error
    rows = [dict(record) for record in records]
    return pandas.DataFrame(rows, columns=list(dict.fromkeys(key for row in rows for key in row)))
