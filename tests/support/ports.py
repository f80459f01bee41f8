"""Ports for servers of tests, where no connection of the machine's own takes one between two starts of a server."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 20_000, 28_999
"""Below those that the kernel gives to connections, and below the leases of jobs."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on."""
    dice = random.SystemRandom()
    while True:
        port = dice.randint(FIRST, LAST)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((host, port))
            except OSError:
                continue
            return port
