"""Reads amounts as Kubernetes writes them: ``500m``, ``1.5``, ``8Gi``, ``2k``."""

from __future__ import annotations

import re
from typing import Any, Final

_UNITS: Final = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    **{f"{unit}i": float(1 << (10 * (power + 1))) for power, unit in enumerate("KMGTPE")},
}
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]{0,2}))")


def quantity(value: Any) -> float:
    """Return an amount as a number; 0 for what is none."""
    found = _QUANTITY.fullmatch(str(value).strip())
    if found is None:
        return 0.0
    try:
        number = float(found[1])
    except ValueError:
        return 0.0
    return number * 10 ** int(found[2]) if found[2] else number * _UNITS.get(found[3], 0.0)
