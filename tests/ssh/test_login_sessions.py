"""Hosts that end a login session with all that runs in it: jobs go on there where their user lingers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.ssh.seen import printed, row
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.controllers import end_all
from tests.support.images import ensure_image_with
from tests.support.images import why_not as no_images
from tests.support.waiting import until
from workbench.job import State
from workbench.paths import Home

IMAGE: Final = "fabric-test/systemd"
PACKAGES: Final = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "dbus-user-session",
    "libpam-systemd",
    "openssh-server",
    "polkitd",
)
HOST_IS_MADE: Final = """
set -e
useradd -m -s /bin/bash ada
mkdir -p /etc/systemd/logind.conf.d /home/ada/.ssh
printf '[Login]\\nKillUserProcesses=yes\\n' >/etc/systemd/logind.conf.d/kill.conf
cat >/home/ada/.ssh/authorized_keys
chown -R ada:ada /home/ada/.ssh
chmod 700 /home/ada/.ssh
systemctl restart systemd-logind
"""
REAL: Final = pytest.mark.soak("a whole systemd in a container; the gate has its requests in tests/learner")


def docker(*args: str, text: str = "") -> str:
    """Run docker; return what it prints."""
    return subprocess.run(
        ["docker", *args], input=text, capture_output=True, text=True, check=True
    ).stdout.strip()


class SystemdHost:
    """A host with systemd, logind and sshd, which ends sessions with all that runs in them."""

    def __init__(self, box: Box) -> None:
        ensure_image_with(IMAGE, PACKAGES)
        options = ("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--cgroupns", "host")
        mounts = ("--tmpfs", "/run", "--tmpfs", "/run/lock", "-v", "/sys/fs/cgroup:/sys/fs/cgroup")
        # By a label and a test's folder it is known as a test's, should nobody remove it.
        marks = ("--label", "fabric.home=test", "-v", f"{box.folder}:/mnt:ro", "-e", "container=docker")
        self.name = docker("run", "-d", *marks, *options, *mounts, IMAGE, "/lib/systemd/systemd")
        self._box = box

    def start(self) -> str:
        """Wait until it can be reached, and let us in; return its address."""
        until(lambda: self.runs("systemctl", "is-active", "ssh"), "the host's sshd to run")
        docker(
            "exec", "-i", self.name, "sh", "-c", HOST_IS_MADE, text=Path(f"{self._box.key}.pub").read_text()
        )
        address = docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", self.name)
        (file,) = docker("exec", self.name, "sh", "-c", "cat /etc/ssh/ssh_host_ed25519_key.pub").splitlines()
        self._box.known_hosts.write_text(f"{self._box.known_hosts.read_text()}{address} {file}\n")
        return f"ssh://ada@{address}"

    def runs(self, *argv: str) -> bool:
        """Run a command there; return whether it succeeds."""
        return subprocess.run(["docker", "exec", self.name, *argv], capture_output=True).returncode == 0

    def runs_unit(self, unit: str) -> bool:
        """Say whether a unit of the user runs there."""
        return self.runs("systemctl", "--user", "-M", "ada@", "is-active", "-q", unit)

    def lose_power(self) -> None:
        """End it as a power cut does, and start it again."""
        docker("kill", self.name)
        docker("start", self.name)

    def has_no_session(self) -> bool:
        """Say whether nobody is logged in there any more."""
        return not docker("exec", self.name, "loginctl", "list-sessions", "--no-legend")

    def end(self) -> None:
        """Remove it."""
        docker("rm", "-f", self.name)


@pytest.fixture
def systemd_host(box: Box, monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemdHost]:
    """A host with systemd."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if reason := no_images():
        pytest.skip(reason)
    with ExitStack() as after:
        host = SystemdHost(box)
        after.callback(host.end)
        yield host


def sessions_finding(fabric: Fabric) -> list[str]:
    """Return the remedies of what `backend test` finds of sessions."""
    (report,) = json.loads(fabric("backend", "test", "lab", "--json").stdout)
    return [each["remedy"] for each in report["findings"] if each["subject"] == "sessions"]


@REAL
def test_a_job_goes_on_when_its_session_ends_where_its_user_lingers(
    systemd_host: SystemdHost, fabric: Fabric, home: Home
) -> None:
    address = systemd_host.start()
    fabric("backend", "add", "lab", address)
    assert "loginctl enable-linger" in sessions_finding(fabric)[0]
    fabric("backend", "remove", "lab")
    added = fabric("backend", "add", "lab", address, "--linger")
    assert "lingering is on there" in added.stderr
    assert sessions_finding(fabric) == []
    end_all(home)
    until(systemd_host.has_no_session, "the first sessions to end")

    command = "echo ready; until [ -e $HOME/end ]; do sleep 0.1; done; echo end"
    job = fabric("run", "-d", "-q", "-b", "lab", "--", "sh", "-c", command).stdout.strip()
    until(lambda: printed(home, job) == "ready\n", lambda: str(row(home, job)))
    end_all(home)
    until(systemd_host.has_no_session, "the session to end")
    assert systemd_host.runs("touch", "/home/ada/end")

    fabric("wait", job)
    assert row(home, job).attempt == 1
    assert printed(home, job) == "ready\nend\n"


@REAL
def test_without_lingering_a_job_is_lost_with_its_session_and_begins_again(
    systemd_host: SystemdHost, fabric: Fabric, home: Home
) -> None:
    fabric("backend", "add", "lab", systemd_host.start())
    command = "echo ready; until [ -e $HOME/end ]; do sleep 0.1; done; echo end"
    job = fabric("run", "-d", "-q", "-b", "lab", "--", "sh", "-c", command).stdout.strip()
    until(lambda: printed(home, job) == "ready\n", lambda: str(row(home, job)))
    end_all(home)
    until(systemd_host.has_no_session, "the session to end")

    fabric("controller", "restart")
    until(lambda: row(home, job).attempt == 2, lambda: str(row(home, job)))
    assert systemd_host.runs("touch", "/home/ada/end")
    fabric("wait", job)
    assert row(home, job).state is State.COMPLETED


@REAL
def test_a_job_that_waits_starts_with_the_host_after_a_power_cut(
    systemd_host: SystemdHost, fabric: Fabric, home: Home
) -> None:
    fabric("backend", "add", "lab", systemd_host.start(), "--linger")
    cpus = docker("exec", systemd_host.name, "nproc")
    first, second = (
        fabric(
            "run", "-d", "-q", "-b", "lab", "--set", f"cpus={cpus}", "--", "sh", "-c", command
        ).stdout.strip()
        for command in ("echo ready; sleep 600", "echo begun; touch $HOME/begun; sleep 600")
    )
    until(lambda: printed(home, first) == "ready\n", lambda: str(row(home, first)))
    kept = f"ls /home/ada/.fabric/*/*/waiting/{second}-1.json"
    until(lambda: systemd_host.runs("sh", "-c", kept), lambda: str(row(home, second)))
    end_all(home)

    systemd_host.lose_power()

    until(lambda: systemd_host.runs("test", "-e", "/home/ada/begun"), "what waited to begin")
    until(systemd_host.has_no_session, "nobody to be logged in")
    (unit,) = docker(
        "exec", systemd_host.name, "sh", "-c", "ls /home/ada/.config/systemd/user/*.service"
    ).split()
    until(lambda: not systemd_host.runs_unit(unit.rpartition("/")[2]), "the waiter to end")
    # The job outlives the unit that has started it.
    fabric("controller", "restart")
    until(lambda: printed(home, second) == "begun\n", lambda: str(row(home, second)))
    assert row(home, second).attempt == 1
    until(lambda: row(home, first).attempt == 2, "what ran to be tried again")
    for job in (first, second):
        fabric("kill", job)
        until(lambda job=job: row(home, job).state is State.HALTED, lambda job=job: str(row(home, job)))  # type: ignore[misc]

    for words, is_there in (
        (("linger", "lab", "--off"), False),
        (("linger", "lab"), True),
        (("remove", "lab", "--purge"), False),
    ):
        fabric("backend", *words)
        assert systemd_host.runs("test", "-e", unit) is is_there


def test_a_host_without_systemd_needs_no_lingering(box: Box, fabric: Fabric) -> None:
    added = fabric("backend", "add", "lab", box.address, "--linger")

    assert "no systemd runs there: nothing ends jobs when the connection ends" in added.stderr
    (script,) = box.user.home.glob(".fabric/*/*/resume.sh")
    assert f"if your crontab there has `@reboot sh {script}`" in added.stderr
    assert sessions_finding(fabric) == []


def test_lingering_is_switched_on_where_the_host_is_reached(box: Box, fabric: Fabric) -> None:
    refused = fabric("backend", "add", "lab", box.address, "--linger", "--untested", expect=64)

    assert "--linger connects to the host" in refused.stderr
