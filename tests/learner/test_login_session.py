"""What a host starts leaves the login session where systemd ends that with all that runs in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.learner.platform import login_session

USER = "ada"
IN_SESSION = "1:name=systemd:/user.slice/user-1000.slice/session-7.scope\n0::/\n"
OUTSIDE = "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/app.slice/fabric-9.scope\n"


class Machine:
    """Files of a machine with systemd, and a ``busctl`` that writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cgroup = folder / "cgroup"
        self.cgroup.write_text(IN_SESSION)
        self.linger = folder / "linger"
        self.linger.mkdir()
        self.asked = folder / "asked"

    def configure(self, text: str, name: str = "logind.conf", folder: str = "") -> None:
        """Write a file of logind's configuration."""
        file = self.folder / folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def lingers(self) -> None:
        """Have the user linger."""
        (self.linger / USER).touch()

    def answers(self, script: str) -> None:
        """Have ``busctl`` do this, after it has written down what it is asked."""
        program = self.folder / "bin/busctl"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "$XDG_RUNTIME_DIR $@" >>{self.asked}\n{script}\n')
        program.chmod(0o755)

    def requests(self) -> list[str]:
        """Return what ``busctl`` was asked."""
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine on which this process is part of a session, and nothing is ended with it."""
    made = Machine(tmp_path)
    folders = tuple(str(tmp_path / name) for name in ("vendor", "local", "runtime", "administrator"))
    monkeypatch.setattr(login_session, "CONFIGURATION", str(tmp_path / "logind.conf"))
    monkeypatch.setattr(login_session, "CONFIGURATION_FOLDERS", folders)
    monkeypatch.setattr(login_session, "LINGER_FOLDER", str(made.linger))
    monkeypatch.setattr(login_session, "CGROUP", str(made.cgroup))
    monkeypatch.setattr(login_session, "_user", lambda: USER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    made.answers(f"printf '{OUTSIDE.strip()}\\n' >{made.cgroup}")
    return made


KILLS = "[Login]\nKillUserProcesses=yes\n"


def test_a_process_leaves_a_session_that_ends_with_all_that_runs_in_it(machine: Machine) -> None:
    machine.configure(KILLS)
    machine.lingers()
    assert login_session.is_ended_with_session()

    login_session.leave_session()

    (request,) = machine.requests()
    assert request.startswith(f"/run/user/{os.getuid()} --user call org.freedesktop.systemd1 ")
    assert "StartTransientUnit ssa(sv)a(sa(sv)) fabric-" in request
    assert request.endswith(f".scope fail 1 PIDs au 1 {os.getpid()} 0")
    assert not login_session.is_ended_with_session()
    login_session.leave_session()
    assert len(machine.requests()) == 1


def test_where_the_user_s_systemd_would_end_too_a_process_stays(machine: Machine) -> None:
    machine.configure(KILLS)
    login_session.leave_session()

    assert machine.requests() == []
    assert login_session.is_ended_with_session()


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "exec /nowhere"])
def test_a_refusal_of_systemd_changes_nothing(machine: Machine, script: str) -> None:
    machine.configure(KILLS)
    machine.lingers()
    machine.answers(script)

    login_session.leave_session()

    assert len(machine.requests()) == 1
    assert login_session.is_ended_with_session()


def test_a_process_outside_of_any_session_has_nothing_to_leave(machine: Machine) -> None:
    machine.configure(KILLS)
    machine.lingers()
    for text in (OUTSIDE, "0::/system.slice/ssh.service\n", "0::/\n", ""):
        machine.cgroup.write_text(text)
        login_session.leave_session()
        assert not login_session.is_ended_with_session()
    assert machine.requests() == []


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({}, False),
        ({"logind.conf": "#KillUserProcesses=yes\n"}, False),
        ({"logind.conf": "KillUserProcesses = True\n"}, True),
        ({"logind.conf": "KillUserProcesses=no\n", "runtime/90.conf": "KillUserProcesses=1\n"}, True),
        ({"logind.conf": "KillUserProcesses=yes\n", "vendor/10.conf": "KillUserProcesses=off\n"}, False),
        ({"vendor/10.conf": "KillUserProcesses=yes\n", "administrator/10.conf": ""}, False),
        (
            {"vendor/20.conf": "KillUserProcesses=yes\n", "administrator/10.conf": "KillUserProcesses=no\n"},
            True,
        ),
        ({"logind.conf": f"KillUserProcesses=yes\nKillExcludeUsers=eve {USER}\n"}, False),
        ({"logind.conf": "KillUserProcesses=yes\nKillOnlyUsers=eve\n"}, False),
        ({"logind.conf": f"KillUserProcesses=yes\nKillOnlyUsers=eve {USER}\n"}, True),
    ],
)
def test_logind_s_configuration_says_whom_it_ends(
    machine: Machine, files: dict[str, str], ends: bool
) -> None:
    for name, text in files.items():
        folder, _, file = name.rpartition("/")
        machine.configure(text, file, folder)

    assert login_session.is_ended_with_session() is ends


def test_root_is_not_ended_unless_the_configuration_names_nobody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_session, "_user", lambda: "root")
    machine.configure(KILLS)
    assert not login_session.is_ended_with_session()
    machine.configure(f"{KILLS}KillExcludeUsers=\n")
    assert login_session.is_ended_with_session()
