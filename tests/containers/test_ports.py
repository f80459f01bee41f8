"""Ports of a container: published on this machine alone, and one that is in use is named."""

from __future__ import annotations

import socket

from tests.support.command import Fabric
from tests.support.engine import MakeJob
from tests.support.images import BUSYBOX
from tests.support.ports import free_port

SERVE = (
    "import socket; s = socket.create_server(('', {port})); print('up', flush=True); "
    "c, _ = s.accept(); c.sendall(b'served')"
)


def test_a_port_is_reached_on_the_loopback_address(make_job: MakeJob) -> None:
    port = free_port()
    job = make_job(f'python3 -c "{SERVE.format(port=port)}"', ports=(port,)).launch()
    job.until_printed(b"up")

    with socket.create_connection(("127.0.0.1", port), 10) as client:
        assert client.recv(100) == b"served"

    assert job.until_over()[1].exit_code == 0


def test_show_says_where_a_port_is(engine: None, fabric: Fabric) -> None:
    port = free_port()
    job = fabric("run", "-d", "--image", BUSYBOX, "--set", f"ports=[{port}]", "--", "true").stdout.strip()
    fabric("wait", job)
    shown = fabric("show", job).stdout

    assert f"127.0.0.1:{port}" in shown


def test_a_port_that_is_in_use_is_named(make_job: MakeJob) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        seen = make_job("true", ports=(port,)).launch().until_over()[1]

    assert seen.reason is not None
    assert seen.reason.code == "C104"
    assert str(port) in seen.reason.text
