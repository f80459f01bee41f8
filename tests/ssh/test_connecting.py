"""Reaching a host: by address, by its name in ~/.ssh/config, by the system's ssh."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from backends.ssh.backend import SshBackend
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.processes import end_everything
from tests.support.sshd import make_user, remove_user
from tests.support.waiting import until
from workbench.errors import BackendUnreachable, ConfigError, NotAllowed
from workbench.paths import Home

pytestmark = pytest.mark.new_host


@pytest.mark.parametrize(
    ("address", "transport"), [("", "paramiko"), ("ssh://box", "paramiko"), ("ssh://box", "openssh")]
)
def test_a_host_is_reached_and_says_who_it_is(box: Box, address: str, transport: str) -> None:
    options = {"config": str(box.config)} if transport == "openssh" else {}
    backend = box.backend(address, transport=transport, **options)
    with closing(backend.open()) as host:
        identity = host.identity()
        ran = host.run(["id", "-un"])

    assert identity.user == box.user.name
    assert ran.stdout.decode().strip() == box.user.name
    assert abs(identity.clock_skew_seconds) < 5


def test_a_host_is_reached_over_jump_hosts_each_known_and_logged_in_to(box: Box) -> None:
    inner = make_user()
    try:
        box.daemon.authorize(inner, Path(f"{box.key}.pub"))
        daemon = box.daemon
        box.config.write_text(
            f"Host target\n  HostName {daemon.address}\n  Port {daemon.port}\n  User {box.user.name}\n"
            "  ProxyJump outer,inner\n"
            f"Host outer inner\n  HostName {daemon.address}\n  Port {daemon.port}\n  User {inner.name}\n"
        )
        with closing(box.backend("ssh://target").open()) as host:
            assert host.identity().user == box.user.name
            assert len([line for line in daemon.log().splitlines() if "Accepted publickey" in line]) == 3
        daemon.authorize(inner, _another_key(box))
        with pytest.raises(NotAllowed, match="outer"):
            box.backend("ssh://target").open()
    finally:
        remove_user(inner)


def test_a_jump_host_that_does_not_reach_the_target_is_named(box: Box) -> None:
    with box.config.open("a") as stream:
        stream.write("Host target\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump box\n")

    with pytest.raises(BackendUnreachable, match=r"box .* does not reach 127\.0\.0\.1 port 1"):
        box.backend("ssh://target").open()


def test_a_proxy_command_is_the_way_there_and_ends_with_the_connection(box: Box) -> None:
    relay = box.folder / "relay.py"
    relay.write_text(RELAY)
    with box.config.open("a") as stream:
        stream.write(
            f"Host target\n  HostName {box.daemon.address}\n  Port {box.daemon.port}\n  User {box.user.name}\n"
            f"  ProxyCommand {sys.executable} {relay} %h %p\n"
        )
    with closing(box.backend("ssh://target").open()) as host:
        assert host.identity().user == box.user.name

    def relays() -> list[Path]:
        return [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(relay).encode() in _read(one)]

    until(lambda: not relays(), "the command to end")


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
def test_a_proxy_command_that_fails_is_no_way_there_and_is_quoted(box: Box, transport: str) -> None:
    words = "the token has expired, log in again"
    with box.config.open("a") as stream:
        stream.write(
            f"Host target\n  User {box.user.name}\n"
            f"  ProxyCommand sh -c 'echo dialling >&2; echo {words} >&2; exit 1'\n"
        )
    options = {"config": str(box.config)} if transport == "openssh" else {}

    with pytest.raises(BackendUnreachable, match=words):
        box.backend("ssh://target", transport=transport, **options).open()


@pytest.mark.parametrize(
    "last",
    [
        "kex_exchange_identification: Connection closed by remote host",
        "banner exchange: Connection to UNKNOWN port 65535: Broken pipe",
        "Connection closed by UNKNOWN port 65535",
    ],
)
def test_what_ssh_adds_of_its_own_is_not_quoted_for_the_proxy_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    # Which of these it says goes by who is faster, so an ssh of ours says each.
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho 'the token has expired' >&2\necho '{last}' >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    backend = SshBackend(BackendOptions("box", "ssh", "ssh://target", {"transport": "openssh"}))

    with pytest.raises(BackendUnreachable, match="the token has expired"):
        backend.open()


def test_a_proxy_command_that_complains_without_end_holds_nothing_up(box: Box) -> None:
    relay = box.folder / "relay.py"
    relay.write_text(RELAY)
    with box.config.open("a") as stream:
        stream.write(
            f"Host target\n  User {box.user.name}\n  ProxyCommand sh -c 'yes complaint | head -c 1000000 >&2; "
            f"exec {sys.executable} {relay} {box.daemon.address} {box.daemon.port}'\n"
        )
    box.known_hosts.write_text(box.daemon.known_line("target"))

    with closing(box.backend("ssh://target").open()) as host:
        assert host.identity().user == box.user.name


def test_the_agent_holds_the_key(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    path = box.folder / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as agent:
        try:
            environment = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            add = ["ssh-add", "-q", str(box.key)]
            # Its socket is there a moment before it listens.
            until(
                lambda: subprocess.run(add, env=environment, capture_output=True).returncode == 0, "the agent"
            )
            box.key.unlink()
            with pytest.raises(NotAllowed):
                box.backend().open()
            box.backend(agent=str(path)).open().close()
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            frozen = box.backend().frozen("process")
        finally:
            agent.kill()

    assert frozen.options == {"agent": str(path)}


class TestOneSession:
    @pytest.fixture
    def box_settings(self) -> list[str]:
        return ["MaxSessions 1", "MaxStartups 1"]

    def test_one_session_is_enough_for_everything(self, box: Box) -> None:
        with closing(box.backend().open()) as host:
            content = b"x" * 3_000_000
            host.put(io.BytesIO(content), f"{box.user.home}/file")
            chunk = host.read({f"{box.user.home}/file": 0}, limit_bytes=0)

            assert host.run(["sh", "-c", f"wc -c < {box.user.home}/file"]).stdout.strip() == b"3000000"
            assert chunk[f"{box.user.home}/file"].end == 0


OTHER_SHELL = pytest.mark.soak(
    "a shell that tests/ssh/test_bad_input.py runs a job by; the gate connects by dash"
)


@pytest.mark.parametrize(
    "shell",
    [
        "/bin/dash",
        *(
            pytest.param(shell, marks=OTHER_SHELL)
            for shell in ("/bin/bash", "/usr/bin/fish", "/bin/csh", "/usr/bin/zsh")
        ),
    ],
)
def test_whatever_the_login_shell_is(box: Box, shell: str) -> None:
    if not Path(shell).exists():
        pytest.skip(f"needs {shell}")
    user = make_user(shell)
    try:
        box.daemon.authorize(user, Path(f"{box.key}.pub"))
        with closing(box.backend(box.address.replace(box.user.name, user.name)).open()) as host:
            assert host.identity().user == user.name
    finally:
        remove_user(user)


def test_the_agent_goes_up_once_and_another_root_is_honoured(box: Box) -> None:
    root = box.user.home / "elsewhere"
    for option in (str(root), "elsewhere"):  # a relative one is of the user's home
        with closing(box.backend(root=option).open()) as host:
            assert Path(host.folder("home")).parent.parent == root

    assert not (box.user.home / ".fabric").exists()
    assert len(list(root.rglob("*.pyz"))) == 1
    assert {path.stat().st_mode & 0o777 for path in root.glob("*")} == {0o700}


def test_nothing_of_ssh_loads_paramiko_where_a_host_was_reached_before(box: Box) -> None:
    assert "process" in box.backend().runners()
    box.daemon.stop()
    code = (
        "import sys, backends.ssh.backend, backends.ssh.config, backends.ssh.connection, backends.ssh.host\n"
        "from backends.interface import BackendOptions\n"
        f"one = backends.ssh.backend.SshBackend(BackendOptions('box', 'ssh', {box.address!r}))\n"
        "one.runners(), one.frozen('process')\n"
        "sys.exit('paramiko' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


RELAY = """
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        there.sendall(data)
    os._exit(0)
threading.Thread(target=up, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""


def _another_key(box: Box) -> Path:
    file = box.folder / "another"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True, capture_output=True
    )
    return Path(f"{file}.pub")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_what_the_hosts_setup_changes_holds_for_jobs_and_a_failure_is_reported(
    box: Box, clean_environment: Path, home: Home
) -> None:
    (box.user.home / ".bash_profile").write_text("echo noise; module() { export CUDA_HOME=/opt/$2; }\n")
    fabric = Fabric(clean_environment / "work")
    fabric.folder.mkdir()
    try:
        setup = "module load cuda; export PATH=$CUDA_HOME/bin:$PATH; echo more noise"
        fabric("backend", "add", "box", box.address, "-o", f"setup={setup}")
        ran = fabric("run", "-q", "--backend", "box", "--", "sh", "-c", "echo $CUDA_HOME; echo $PATH")
        assert ran.stdout.splitlines()[0] == "/opt/cuda"
        assert ran.stdout.splitlines()[1].startswith("/opt/cuda/bin:")
    finally:
        end_everything(home)

    with pytest.raises(ConfigError, match="no-such-command"):
        box.backend(setup="no-such-command").open()
