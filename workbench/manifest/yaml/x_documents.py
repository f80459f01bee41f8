"""Parts a file that holds several manifests, one a YAML document, so that each is read as if it were alone."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

_MARK: Final = re.compile(r"(---|\.\.\.)(?=\s|$)")
_SAYS_NOTHING: Final = re.compile(r"\s*(#.*|%.*)?")


def documents(text: str) -> list[str]:
    """Return the text of each document that says something, in their order.

    Each keeps its place: what belongs to others is blank lines, so that faults name the line of the file.
    A text without any comes back as it is, once.
    """
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if _MARK.match(line)]
    bounds = [0, *starts, len(lines)]
    found = []
    for begin, end in pairwise(bounds):
        own = lines[begin:end]
        said = [_MARK.sub("", own[0], count=1), *own[1:]] if own else []
        if any(not _SAYS_NOTHING.fullmatch(line.rstrip("\r\n")) for line in said):
            found.append("\n" * begin + "".join(own))
    return found if len(found) > 1 else [text]
