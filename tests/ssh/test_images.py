"""Images go from the engine here to the engine there, layer by layer, and a registry has no part in it."""

from __future__ import annotations

import io
import secrets
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.second_engine import second_engine
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.images import BUSYBOX
from tests.support.processes import end_everything
from workbench.paths import Home

LARGE_BYTES = 3_000_000


@pytest.fixture
def fabric(clean_environment: Path, home: Home) -> Iterator[Fabric]:
    """The command line, with a working folder."""
    folder = clean_environment / "work"
    folder.mkdir()
    yield Fabric(folder)
    end_everything(home)


@pytest.fixture
def image(engine_box: Box) -> Iterator[str]:
    """An image of two layers, the lower of them another image's."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        text = f"FROM {BUSYBOX}\nCOPY large /large\n".encode()
        for name, data in (("Dockerfile", text), ("large", bytes(LARGE_BYTES))):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    name = f"fabric-test/sent-{secrets.token_hex(4)}"
    build = ["docker", "build", "-q", "-t", name, "-"]
    subprocess.run(build, input=file.getvalue(), check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)


def test_an_image_goes_there_without_the_layers_that_are_there_by_a_connection_of_its_own_and_a_logins(
    image: str, box: Box, fabric: Fabric, clean_environment: Path
) -> None:
    with second_engine(clean_environment / "engine", box.user) as socket:
        fabric("backend", "add", "box", box.address, "-o", f"engine={socket}")
        connections = box.daemon.connections()
        first = fabric.json("image", "send", "box", BUSYBOX, "--json")
        assert (first["layers"], first["sent_layers"]) == (1, 1)
        assert box.daemon.connections() > connections
        assert f"{BUSYBOX} already exists there" in fabric("image", "send", "box", BUSYBOX).stdout

        fabric("backend", "login", "box")
        connections = box.daemon.connections()
        second = fabric.json("image", "send", "box", image, "--json")
        assert (second["layers"], second["sent_layers"]) == (2, 1)
        assert LARGE_BYTES < second["sent_bytes"] < LARGE_BYTES + 100_000

        output = fabric("image", "send", "box", image).stdout
        assert output == f"{image} already exists there\n"
        assert _id(image, socket) == _id(image)
        missing = fabric("image", "send", "box", "no-such-image", expect=66)
        assert "no image no-such-image here" in missing.stderr
        assert box.daemon.connections() == connections


def _id(image: str, socket: Path | None = None) -> str:
    engine = [] if socket is None else ["-H", f"unix://{socket}"]
    argv = ["docker", *engine, "image", "inspect", "-f", "{{.Id}}", image]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
