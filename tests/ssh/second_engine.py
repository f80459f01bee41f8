"""A Docker engine of the tests' own beside the machine's: empty, with a socket that a user of the box may use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.containers.own_engine import OwnEngine
from tests.support.sshd import User

NETWORK_NUMBER = 240
"""Of no other engine of the tests."""


@contextmanager
def second_engine(folder: Path, user: User) -> Iterator[Path]:
    """Start it, and give its socket, which a user may use."""
    try:
        with OwnEngine(folder, NETWORK_NUMBER) as engine:
            engine.start()
            socket = Path(engine.address.removeprefix("unix://"))
            os.chown(socket, user.uid, 0)
            yield socket
    finally:
        shutil.rmtree(folder, ignore_errors=True)
