"""Processes of several people that hold leases, and go on when the process that took them is gone."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from workbench.learner.platform import leases

ANNA, BERT, EVE = 12346, 12347, 12348
"""People without a name on this machine, so they are called by their number."""


def check(holds: bool) -> None:
    """Fail where something does not hold."""
    assert holds


@contextlib.contextmanager
def a_process(does: Callable[[], object], person: int = -1) -> Iterator[int]:
    """Do something in a process, of another person if one is named, that stays until it is killed; its pid."""
    if person >= 0 and os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    done, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            if person >= 0:
                os.setgroups([])
                os.setgid(person)
                os.setuid(person)
            does()
            os.write(say, b"x")
            signal.pause()
        os._exit(1)
    os.close(say)
    try:
        assert os.read(done, 1) == b"x"
        yield pid
    finally:
        os.close(done)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def a_learner_whose_taker_is_gone(folder: str, names: list[str], text: str, person: int) -> Iterator[None]:
    """Have a process hold leases that another one has taken, which has ended."""
    died, living = os.pipe()

    def take() -> None:
        assert leases.take(names, folder, text) is not None
        if os.fork() == 0:
            os.close(living)
            os.read(died, 1)  # until whoever made all of this lets go
            os._exit(0)

    try:
        with a_process(take, person):
            os.close(died)
        yield
    finally:
        os.close(living)
