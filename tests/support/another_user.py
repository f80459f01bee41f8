"""What another user of this machine does, which only root can try."""

from __future__ import annotations

import contextlib
import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from typing import Final

import pytest

USER: Final = 12346


def as_another(does: Callable[[], object]) -> None:
    """Do something as another person, in a process of its own."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(USER)
            os.setuid(USER)
            does()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@contextlib.contextmanager
def person_process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of another person beside the test; it ends with this block."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    with subprocess.Popen(
        ["/usr/bin/env", "python3", "-I", "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        user=USER,
        group=USER,
        extra_groups=[],
        cwd="/",
    ) as process:
        try:
            yield process
        finally:
            process.kill()
