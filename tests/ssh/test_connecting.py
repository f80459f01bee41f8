"""Reaching a host: by address, by its name in ~/.ssh/config, by the system's ssh."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.ssh.conftest import Box


@pytest.mark.parametrize("address", ["", "ssh://box"])
@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
def test_a_host_is_reached_and_says_who_it_is(box: Box, address: str, transport: str) -> None:
    options = {"config": str(box.config)} if transport == "openssh" else {}
    backend = box.backend("ssh://box" if transport == "openssh" else address, transport=transport, **options)
    with closing(backend.open()) as host:
        identity = host.identity()
        ran = host.run(["id", "-un"])

    assert identity.user == box.user.name
    assert ran.stdout.decode().strip() == box.user.name
    assert abs(identity.clock_skew_seconds) < 5
