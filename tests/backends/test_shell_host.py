"""A place with nothing but a shell: what is read in two steps is told as if it had been read in one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from backends.ssh.sh_client import Piece, ShellClient
from backends.ssh.sh_operations import ShellOperations

FOLDER = "/place/learner"
BOOT = "boot"


class LearnerThatEnds:
    """A shell at a place where an agent records its exit and ends after its state was first read."""

    def __init__(self) -> None:
        self.over = False

    def lines(self, script: str) -> list[str]:
        if "machine-id" in script:
            return ["machine", BOOT, "box", "me", "Linux", "x86_64", "1"]
        self.over = True
        return ["gone"]

    def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> list[Piece | None]:
        state: dict[str, Any] = {"phase": "running", "pid": 7, "start_ticks": 1, "boot_id": BOOT}
        if self.over:
            state |= {"phase": "exited", "exit_code": 0}
        content = json.dumps(state).encode()
        return [Piece(content, len(content)) if path.endswith("state.json") else None for path, *_ in wanted]


def test_a_learner_that_ends_while_it_is_looked_at_is_not_taken_for_dead() -> None:
    place = ShellOperations(cast(ShellClient, LearnerThatEnds()))

    facts = place.learner(FOLDER)

    assert (facts["state"]["phase"], facts["state"]["exit_code"]) == ("exited", 0)
