"""FfDL's library of patterns: ``%{FLOAT:loss}`` in a regular expression is a number, bound to a name."""

from __future__ import annotations

import re
from typing import Dict, Tuple

MACROS: Dict[str, str] = {
    "GLOG_STAMP": r"[EFIW]\d\d\d\d\s+\d\d:\d\d:\d*\.\d+",
    "TIMESTAMP": r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[-+]\d{2}:?\d{2})?",
    # A loss that became nan or inf is a point too.
    "FLOAT": r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?:[nN][aA][nN]|[iI][nN][fF](?:inity)?)\b)",
    "INT": r"[-+]?\d+",
    "INT_ANY": r"[-+]?(?:0[xX][\dA-Fa-f]+|0[0-7]*|\d+)",
    "HEX": r"[-+]?(?:0[xX])?[\dA-Fa-f]+",
}
"""Name to pattern; a pattern may name others."""

_REFERENCE = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_DEPTH = 8


def expand(pattern: str, depth: int = 0) -> str:
    """Return the pattern with every ``%{NAME}`` and ``%{NAME:bind}`` replaced, again and again.

    Raises:
        ValueError: a name that is not in the library, or one that names itself.
    """
    if depth > _DEPTH:
        raise ValueError("the pattern %.60r names itself" % pattern)

    def replace(match: Tuple[str, str]) -> str:
        name, bind = match
        if name not in MACROS:
            known = ", ".join(sorted(MACROS))
            raise ValueError("there is no pattern %%{%s}; those there are: %s" % (name, known))
        body = expand(MACROS[name], depth + 1)
        return "(?P<%s>%s)" % (bind, body) if bind else "(?:%s)" % body

    return _REFERENCE.sub(lambda match: replace((match.group(1), match.group(2) or "")), pattern)
