"""Where it is not known what a store has, since a copy was broken off: who stores there next compares first."""

from __future__ import annotations

import contextlib
import json
import os

NAME = "storing.doubts"
"""Lies in a learner's folder, since what was broken off by one process is gone on with by another."""


class Doubts:
    """The targets of one learner's copies whose end nobody saw.

    Args:
        folder: the learner's.
        everywhere: whether nothing at all is known of the store, as in a later attempt.
    """

    def __init__(self, folder: str, *, everywhere: bool) -> None:
        self._path = os.path.join(folder, NAME)
        self._everywhere = everywhere
        self._sure: set[str] = set()
        self._targets: set[str] = set()
        with contextlib.suppress(OSError, ValueError), open(self._path, "rb") as file:
            self._targets = set(json.loads(file.read()))

    def about(self, target: str) -> bool:
        """Say whether there may be something at a target that we do not know of."""
        return target in self._targets or (self._everywhere and target not in self._sure)

    def begin(self, target: str) -> None:
        """Take a copy to a target for broken off until its end is told."""
        if target not in self._targets:
            self._targets.add(target)
            self._write()

    def end(self, target: str) -> None:
        """Take note that a copy to a target came to its end."""
        self._sure.add(target)
        self._targets.discard(target)
        self._write()

    def forget(self) -> None:
        """Have none any more: what is there was listed."""
        self._everywhere = False
        self._targets.clear()
        self._write()

    def _write(self) -> None:
        # A disk that takes no more is no reason to store nothing.
        with contextlib.suppress(OSError):
            if not self._targets:
                os.unlink(self._path)
                return
            with open(self._path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(sorted(self._targets), file)
            os.rename(self._path + ".new", self._path)
