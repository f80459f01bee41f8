"""By what a distribution of a search is known in plain JSON: manifests are read by it, and what is stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DISTRIBUTIONS: Final = ("loguniform", "uniform", "int", "choice")


def distribution_name(value: Mapping[str, Any]) -> str:
    """Return the name of the distribution that a map is; empty for one of more parameters.

    A map is a distribution where a list is below its name: a parameter of an experiment of Determined may have the
    name of one, too.
    """
    return next((name for name in DISTRIBUTIONS if isinstance(value.get(name), (list, tuple))), "")
