"""MASTER_PORT: a port that nobody listens on and that no other job was given, leased like a GPU."""

from __future__ import annotations

import hashlib
from typing import Final

from backends.contract.host import Host, Lock
from runners.shared.host_facts import Site
from workbench.errors import NotAllowed, RunnerError, TryAgain

PORTS: Final = range(29500, 30500)
"""Below those that the kernel gives out by itself."""

_TRIES: Final = 20


def choose_port(host: Host, site: Site, text: str, held: list[Lock]) -> int:
    """Choose a port; its lease, where leases can be had, is added to ``held``.

    Raises:
        RunnerError: none of those that were tried is free.
    """
    # Jobs that start at the same time begin to look at different ones.
    first = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    candidates = [PORTS[(first + step) % len(PORTS)] for step in range(_TRIES)]
    free: list[int] = host.call("bindable", ports=candidates)
    for port in free:
        try:
            lock = host.lock([f"port-{port}"], folder=site.leases, text=text)
        except (NotAllowed, TryAgain):
            return port
        if lock is not None:
            held.append(lock)
            return port
    raise RunnerError(f"No port for MASTER_PORT is free among {_TRIES} from {PORTS.start} on.")
