"""All that is to be known of a host is asked for at once: over a slow link each further question would be felt."""

from __future__ import annotations

from typing import Any

import pytest

from backends.rpc.client import FrameClient
from tests.support.box import Box


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the operations that hosts are asked for."""
    asked: list[str] = []
    request = FrameClient.request

    def noted(client: FrameClient, operation: str, *about: Any, **named: Any) -> Any:
        asked.append(operation)
        return request(client, operation, *about, **named)

    monkeypatch.setattr(FrameClient, "request", noted)
    return asked


def test_a_probe_asks_an_open_host_once(box: Box, asked: list[str]) -> None:
    found = {finding.subject: finding.found for finding in box.backend().probe()}

    assert asked == ["prospects"]
    assert found["reach"].startswith(f"{box.user.name}@")
    assert {"python", "shell", "machine", "gpu", "disk", "engine"} <= set(found)


def test_what_a_host_has_is_one_question_too(box: Box, asked: list[str]) -> None:
    backend = box.backend()
    host = backend.open()
    (node,) = backend.inventory_of(host).nodes
    host.close()

    assert asked == ["inventory"]
    assert node.cpus > 0
    assert node.disk_free_bytes
