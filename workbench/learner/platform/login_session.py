"""The login session that a process is part of, which systemd may end with all that runs in it.

``KillUserProcesses=yes`` in logind's configuration has each session's scope ended when the session ends, as an SSH
connection's does when a laptop's lid closes, whether or not the user lingers. What is in a scope of the user's own
systemd stays, and that goes on after the last session where the user lingers. See ``logind.conf(5)`` and
``systemd-run(1)``.
"""

from __future__ import annotations

import os
import pwd
import time

from workbench.learner.platform.system import LINUX, read_text

CONFIGURATION = "/etc/systemd/logind.conf"
CONFIGURATION_FOLDERS = (
    "/usr/lib/systemd/logind.conf.d",
    "/usr/local/lib/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/etc/systemd/logind.conf.d",
)
"""A file of a later folder replaces one of the same name."""

LINGER_FOLDER = "/var/lib/systemd/linger"
CGROUP = "/proc/self/cgroup"
ANSWER_SECONDS = 5.0
"""How long the user's systemd may take to answer."""
MOVE_SECONDS = 2.0
"""How long it may take then to move a process."""
_PAUSE_SECONDS = 0.005

_TRUE = ("yes", "true", "1", "on", "y", "t")


def leave_session() -> None:
    """Move this process out of its login session, with all that it starts from now on, where that would end it.

    The user has to linger. Where the user's systemd does not take it, it stays in the session.
    """
    if not is_ended_with_session() or not lingers():
        return
    import subprocess  # a machine that does this is rare

    environment = dict(os.environ)
    environment.setdefault("XDG_RUNTIME_DIR", "/run/user/%d" % os.getuid())
    call = "busctl --user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
    scope = "fabric-%d-%d.scope" % (os.getpid(), time.time_ns())
    arguments = (
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        scope,
        "fail",
        "1",
        "PIDs",
        "au",
        "1",
        str(os.getpid()),
        "0",
    )
    try:
        subprocess.run(
            [*call.split(), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return
    # It is moved soon after the answer.
    until = time.monotonic() + MOVE_SECONDS
    while is_in_session() and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)


def is_ended_with_session() -> bool:
    """Say whether this process, and what it starts, is ended when its login session ends."""
    return is_in_session() and _kills_processes(_user())


def is_in_session() -> bool:
    """Say whether this process is part of a login session as systemd counts it."""
    return LINUX and any(
        part.startswith("session-") and part.endswith(".scope")
        for line in read_text(CGROUP).splitlines()
        for part in line.split("/")
    )


def lingers() -> bool:
    """Say whether this user's systemd goes on after the last session."""
    return os.path.exists(os.path.join(LINGER_FOLDER, _user()))


def _kills_processes(user: str) -> bool:
    settings = {"KillUserProcesses": "", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    found = {name: folder for folder in CONFIGURATION_FOLDERS for name in _names(folder)}
    drop_ins = (os.path.join(found[name], name) for name in sorted(found) if name.endswith(".conf"))
    for path in (CONFIGURATION, *drop_ins):
        for line in read_text(path).splitlines():
            name, _, value = line.partition("=")
            if name.strip() in settings:
                settings[name.strip()] = value.strip()
    only, excluded = settings["KillOnlyUsers"].split(), settings["KillExcludeUsers"].split()
    kills = settings["KillUserProcesses"].lower() in _TRUE
    return kills and user not in excluded and (not only or user in only)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
