"""A host that is reached over SSH for real: sshd on loopback, a user made for the test, a key and known_hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions, Host
from backends.ssh.backend import SshBackend
from tests.support.images import ensure_images
from tests.support.images import why_not as no_images
from tests.support.kept_agents import lend_agents_to
from tests.support.kept_ground import a_folder
from tests.support.sshd import SSHD, Daemon, User, a_user, let_use_docker, why_not
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

    def apart(self) -> SshBackend:
        """Make the backend of it for one who has another home folder than ours."""
        folder = str(self.folder / "fabric")
        return self.backend("ssh://box", config=str(self.config), home=folder, agent="")

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
def box_knows_us(request: pytest.FixtureRequest) -> bool:
    """Whether the host has our agent, as after an earlier job; tests of arriving are marked ``new_host``."""
    return request.node.get_closest_marker("new_host") is None


@contextmanager
def a_box(
    folder: Path,
    leases: Path,
    *,
    settings: Sequence[str] = (),
    environment: Sequence[str] = (),
    within: Sequence[str] = (),
    home: Path | None = None,
    program: str = SSHD,
    knows_us: bool = True,
) -> Iterator[Box]:
    """Start an SSH host that lets us in and that we know; what we know of it lies in a folder, as in a home.

    ``knows_us``: it has the agent of the home ``fabric`` in that folder.
    """
    leases.chmod(0o1777)
    folder.chmod(0o755)
    with a_user(within=home) as user:
        if knows_us:
            lend_agents_to(user, Home(folder / "fabric"))
        daemon = Daemon(
            folder / "sshd",
            settings=[*settings, " ".join(["SetEnv", f"FABRIC_LEASES={leases}", *environment])],
            within=within,
            program=program,
        )
        with daemon:
            yield known(daemon, user, folder)


def known(daemon: Daemon, user: User, folder: Path) -> Box:
    """Have a host let us in by a new key, and write down in our home folder what is to be known of it."""
    box = Box(daemon, user, folder)
    box.key.parent.mkdir(mode=0o700)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(box.key)]
    subprocess.run(argv, check=True, capture_output=True)
    box.known_hosts.write_text(daemon.known_line())
    box.config.write_text(
        f"Host box\n  HostName {daemon.address}\n  Port {daemon.port}\n  User {user.name}\n"
        f"  IdentityFile {box.key}\n  UserKnownHostsFile {box.known_hosts}\n"
    )
    daemon.authorize(user, Path(f"{box.key}.pub"))
    return box


@pytest.fixture
def box(
    clean_environment: Path,
    box_settings: list[str],
    box_environment: list[str],
    box_within: list[str],
    box_home: Path | None,
    box_program: str,
    box_knows_us: bool,
) -> Iterator[Box]:
    """An SSH host that lets us in and that we know."""
    if reason := why_not():
        pytest.skip(reason)
    with a_box(
        clean_environment,
        clean_environment / "leases",
        settings=box_settings,
        environment=box_environment,
        within=box_within,
        home=box_home,
        program=box_program,
        knows_us=box_knows_us,
    ) as made:
        yield made


@contextmanager
def a_common_box() -> Iterator[Box]:
    """Make such a host in a folder of its own, or skip."""
    if reason := why_not():
        pytest.skip(reason)
    with a_folder() as folder, a_box(folder, folder / "leases") as made:
        yield made


@pytest.fixture(scope="class")
def class_box() -> Iterator[Box]:
    """One such host for all tests of a class, which leave it as they found it."""
    with a_common_box() as made:
        yield made


@pytest.fixture(scope="module")
def kept_box() -> Iterator[Box]:
    """One such host for those tests of a module that ask for it; they leave it as they found it."""
    with a_common_box() as made:
        yield made


@pytest.fixture
def engine_box(box: Box, monkeypatch: pytest.MonkeyPatch) -> Box:
    """The same, where its user may use a container engine that has the tests' images."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if reason := no_images():
        pytest.skip(reason)
    ensure_images()
    let_use_docker(box.user)
    return box


@pytest.fixture(scope="class")
def class_engine_box(class_box: Box) -> Box:
    """The same, where its user may use a container engine that has the tests' images."""
    with pytest.MonkeyPatch.context() as here:
        here.delenv("DOCKER_HOST", raising=False)
        if reason := no_images():
            pytest.skip(reason)
        ensure_images()
    let_use_docker(class_box.user)
    return class_box


@pytest.fixture(scope="class")
def class_host(class_box: Box) -> Iterator[Host]:
    """That host, open; each test uses it with a home of its own."""
    with closing(class_box.apart().open()) as host:
        yield host


@pytest.fixture(scope="class")
def class_engine_host(class_engine_box: Box) -> Iterator[Host]:
    """The same, for who may use its engine."""
    with closing(class_engine_box.apart().open()) as host:
        yield host
