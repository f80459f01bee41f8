"""A host that is reached over SSH for real: sshd on loopback, a user made for the test, a key and known_hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from backends.ssh.backend import SshBackend
from tests.cli.conftest import Fabric, end_everything
from tests.containers.images import ensure_images
from tests.containers.images import why_not as no_images
from tests.ssh.bare import bare_root
from tests.ssh.daemon import SSHD, Daemon, User, let_use_docker, make_user, remove_user, why_not
from workbench.paths import Home


@dataclass(frozen=True, slots=True)
class Box:
    """An SSH host, and what our side knows of it."""

    daemon: Daemon
    user: User
    folder: Path
    """Our own home folder."""

    @property
    def address(self) -> str:
        """Its address in full."""
        return f"ssh://{self.user.name}@{self.daemon.address}:{self.daemon.port}"

    @property
    def config(self) -> Path:
        """Our ``~/.ssh/config``."""
        return self.folder / ".ssh" / "config"

    @property
    def known_hosts(self) -> Path:
        """Our ``~/.ssh/known_hosts``."""
        return self.folder / ".ssh" / "known_hosts"

    @property
    def key(self) -> Path:
        """Our private key."""
        return self.folder / ".ssh" / "id_ed25519"

    def backend(self, address: str = "", **options: str) -> SshBackend:
        """Make the backend of it."""
        return SshBackend(BackendOptions("box", "ssh", address or self.address, options))


@pytest.fixture
def box_settings() -> list[str]:
    """Lines for sshd_config; overridden by a test that wants some."""
    return []


@pytest.fixture
def box_environment() -> list[str]:
    """Variables that sessions there have, ``NAME=VALUE``; overridden by a test that wants some."""
    return []


@pytest.fixture
def box_within() -> list[str]:
    """What sshd is started by, with its words after it; overridden by a test whose host is another kind of one."""
    return []


@pytest.fixture
def box_home() -> Path | None:
    """Where the home folder of its user is made; overridden by a test for which that matters."""
    return None


@pytest.fixture
def box_program() -> str:
    """Which sshd is started; PAM goes by its name. Overridden by a test that has rules of its own there."""
    return SSHD


@pytest.fixture
def box(
    clean_environment: Path,
    box_settings: list[str],
    box_environment: list[str],
    box_within: list[str],
    box_home: Path | None,
    box_program: str,
) -> Iterator[Box]:
    """An SSH host that lets us in and that we know."""
    if reason := why_not():
        pytest.skip(reason)
    leases = clean_environment / "leases"
    leases.chmod(0o1777)
    clean_environment.chmod(0o755)
    user = make_user(within=box_home)
    daemon = Daemon(
        clean_environment / "sshd",
        settings=[*box_settings, " ".join(["SetEnv", f"FABRIC_LEASES={leases}", *box_environment])],
        within=box_within,
        program=box_program,
    )
    try:
        box = Box(daemon, user, clean_environment)
        box.key.parent.mkdir(mode=0o700)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(box.key)],
            check=True,
            capture_output=True,
        )
        box.known_hosts.write_text(daemon.known_line())
        box.config.write_text(
            f"Host box\n  HostName {daemon.address}\n  Port {daemon.port}\n  User {user.name}\n"
            f"  IdentityFile {box.key}\n  UserKnownHostsFile {box.known_hosts}\n"
        )
        daemon.authorize(user, Path(f"{box.key}.pub"))
        daemon.start()
        yield box
    finally:
        daemon.stop()
        remove_user(user)


@pytest.fixture
def engine_box(box: Box, monkeypatch: pytest.MonkeyPatch) -> Box:
    """The same, where its user may use a container engine that has the tests' images."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if reason := no_images():
        pytest.skip(reason)
    ensure_images()
    let_use_docker(box.user)
    return box


@pytest.fixture
def bare(box: Box) -> Iterator[tuple[Box, Path]]:
    """A host with nothing but busybox, and where its root is."""
    if reason := why_not():
        pytest.skip(reason)
    user = make_user("/bin/sh")
    with bare_root(user) as root:
        daemon = Daemon(box.folder / "bare-sshd", settings=[f"ChrootDirectory {root}"])
        daemon.authorize(user, Path(f"{box.key}.pub"))
        daemon.start()
        box.known_hosts.write_text(box.known_hosts.read_text() + daemon.known_line())
        try:
            yield Box(daemon, user, box.folder), root
        finally:
            daemon.stop()
            remove_user(user)


@pytest.fixture
def fabric(box: Box, clean_environment: Path, home: Home) -> Iterator[Fabric]:
    """The command line, with a working folder."""
    folder = clean_environment / "work"
    folder.mkdir()
    yield Fabric(folder)
    end_everything(home)
