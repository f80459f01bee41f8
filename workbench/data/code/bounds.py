"""Limits on how much code is taken without asking, and the refusal of more."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from workbench.errors import UsageError
from workbench.values import dataclass

LARGEST_NAMED: Final = 10
INSTEAD: Final = (
    "name in .fabricignore what a learner does not need; --code-anyway (code_anyway: true) takes all of it, and"
    " [code] of config.toml says how much is taken without asking"
)
"""What to do about code that is too much."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is taken without asking; each limit counts by itself."""

    size_bytes: float = 1_048_576_000
    """``1GB``, as manifests count."""
    files: float = 100_000
    seconds: float = 60
    """How long a folder may be listed before any file is read."""


USUAL: Final = Bounds()
UNBOUNDED: Final = Bounds(float("inf"), float("inf"), float("inf"))


@dataclass(frozen=True, slots=True)
class CodeExcess:
    """Code that is more than is taken without asking."""

    source: Path
    files: int
    size_bytes: int
    largest: tuple[tuple[str, int], ...]
    """The largest files with their sizes."""
    is_whole: bool
    """False where there was no time to look through all of it."""

    def __str__(self) -> str:
        at_least = "" if self.is_whole else "at least "
        first = (
            f"the code in {self.source} is {at_least}{self.files:,} files of {megabytes(self.size_bytes)},"
            " which is more than is taken without asking"
        )
        lines = [f"  {megabytes(length):>12}  {path}" for path, length in self.largest]
        return "\n".join([first + (":" if not lines else "; the largest:"), *lines]).rstrip(":")


def excess(
    source: Path, sizes: Iterable[tuple[str, int]], bounds: Bounds, *, is_whole: bool = True
) -> CodeExcess | None:
    """Return what is too much of these files, each a path and a size; None where all of it may be taken."""
    listed = list(sizes)
    total = sum(length for _, length in listed)
    if is_whole and total <= bounds.size_bytes and len(listed) <= bounds.files:
        return None
    largest = heapq.nlargest(LARGEST_NAMED, listed, key=lambda pair: pair[1])
    return CodeExcess(source, len(listed), total, tuple(largest), is_whole)


def too_much(found: CodeExcess) -> UsageError:
    """Return the error for code over the limits."""
    return UsageError(str(found), hint=INSTEAD)


def megabytes(size: int) -> str:
    """Return a size as text, in MB, kB or B."""
    if size >= 1_000_000:
        return f"{size / 1_000_000:,.0f} MB"
    return f"{size / 1000:,.0f} kB" if size >= 1000 else f"{size} B"
