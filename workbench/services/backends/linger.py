"""Has a host keep a person's jobs: beyond their last session there, and what waits beyond a restart of the machine."""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import TYPE_CHECKING, Final

from workbench.errors import BackendError, UsageError
from workbench.learner.queue.home_waiter import RESUME_SCRIPT, WAITING_FOLDER
from workbench.paths import Home, default_home
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Completed, Host
    from workbench.documents.machines import LingerDocument

_NO_SYSTEMD: Final = 127
_ENABLE_LINGER: Final = f"[ -d /run/systemd/system ] || exit {_NO_SYSTEMD}; exec loginctl enable-linger"

_UNITS: Final = 'u=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user; w=$u/default.target.wants; n="$u/$1"'
_RELOAD: Final = "systemctl --user daemon-reload >/dev/null 2>&1 || :"
"""The next start of the machine reads it anyway."""

_WRITE_UNIT: Final = f"""\
{_UNITS}
mkdir -p "$w" && printf %s "$2" >"$n" && ln -sf "../$1" "$w/$1" && printf '%s\\n' "$n" || exit
{_RELOAD}
"""
_REMOVE_UNIT: Final = f"""\
{_UNITS}
[ -e "$n" ] || exit 0
rm -f "$w/$1" "$n"
{_RELOAD}
"""
_WRITE_SCRIPT: Final = """\
[ -e "$1" ] || { umask 077; printf '#!/bin/sh\\n# Nothing has waited here yet.\\n' >"$1"; }
"""

_UNIT: Final = """\
[Unit]
Description=Starts the jobs of fabric that wait here
ConditionHost={machine}
ConditionPathExists={condition}
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
ExecStart=/bin/sh "{script}"
# What it has started goes on after it.
KillMode=process
OOMPolicy=continue
TasksMax=infinity
Restart=on-failure
RestartSec=30

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a host keeps of a person's jobs."""

    has_systemd: bool
    script: str = ""
    """What has that which waits there start with the machine; empty where nothing has."""
    unit: str = ""
    """The unit that runs it; empty without systemd."""

    def document(self, name: str) -> LingerDocument:
        """Return it as ``--json`` gives it, schema ``fabric.linger/1``; ``name`` is the backend's."""
        return {
            "schema": "fabric.linger/1",
            "name": name,
            "script": self.script or None,
            "unit": self.unit or None,
        }

    def sentences(self) -> list[str]:
        """Say it in sentences."""
        lingers = (
            "lingering is on there: what is started from the next connection on goes on after your last session"
            if self.has_systemd
            else "no systemd runs there: nothing ends jobs when the connection ends"
        )
        if not self.script:
            return [lingers, "it has no Python: jobs wait here, not there"]
        line = f"`@reboot sh {shlex.quote(self.script)}`"
        by = self.unit or f"if your crontab there has {line}"
        colon = ":" if self.unit else ""
        return [lingers, f"what waits there starts again after a restart of it{colon} {by}"]


def keep_jobs(options: BackendOptions) -> Kept:
    """Have a host keep what a person runs there after the last session, and start what waits there when it starts.

    Where systemd ends sessions with all that runs in them, it is the user's own systemd that keeps jobs.

    Raises:
        UsageError: it is a cluster, or this machine.
        BackendError: it was refused there.
    """
    with closing(_opened(options)) as host:
        ran = host.run(["sh", "-c", _ENABLE_LINGER])
        has_systemd = ran.exit_code != _NO_SYSTEMD
        if has_systemd and ran.exit_code:
            raise BackendError(
                f"lingering was refused there: {_last_line(ran)}",
                hint="root can switch it on: loginctl enable-linger USER",
            )
        if not host.identity().python:
            return Kept(has_systemd)
        uuid = _home_uuid()
        folder = host.folder(uuid)
        script = f"{folder}/{RESUME_SCRIPT}"
        host.call("make_folders", paths=[folder])
        _run(host, _WRITE_SCRIPT, script)
        if not has_systemd:
            return Kept(has_systemd, script)
        text = _UNIT.format(
            machine=host.identity().machine_id,
            condition=script.replace("%", "%%"),
            script=_in_command(script),
        )
        return Kept(has_systemd, script, _run(host, _WRITE_UNIT, _unit_name(host, uuid), text))


def start_nothing(options: BackendOptions) -> None:
    """Have a host start nothing any more when it starts; that the person lingers stays.

    Raises:
        UsageError: it is a cluster, or this machine.
        BackendError: it was refused there.
    """
    with closing(_opened(options)) as host:
        uuid = _home_uuid()
        remove_unit(host, uuid)
        folder = host.folder(uuid)
        host.call("remove", paths=[f"{folder}/{RESUME_SCRIPT}", f"{folder}/{WAITING_FOLDER}"])


def _opened(options: BackendOptions) -> Host:
    from backends.contract.host import Host
    from workbench.services.backends.placement import open_backend, refuse_several

    refuse_several(options)
    if options.type == "local":
        raise UsageError(
            "jobs that wait on this machine start again with the next fabric command here",
            hint="`fabric doctor` says whether they outlive your session",
        )
    opened = None if options.type == "kubernetes" else open_backend(options).open()
    if not isinstance(opened, Host):
        if opened is not None:
            opened.close()
        raise UsageError(
            f"{options.name} is a cluster: pods run without a session, and wait there by themselves"
        )
    return opened


def _home_uuid() -> str:
    from workbench.store.db.identity import home_uuid

    return home_uuid(Home(default_home()))


def _unit_name(host: Host, uuid: str) -> str:
    """Return the name of the unit with which a host's systemd starts what waits there; machines may share a folder."""
    return f"fabric-{uuid[:8]}-{host.identity().machine_id[:8]}.service"


def remove_unit(host: Host, uuid: str) -> None:
    """Have a host start nothing any more when it starts.

    Raises:
        BackendError: it was refused there.
    """
    _run(host, _REMOVE_UNIT, _unit_name(host, uuid))


def _run(host: Host, script: str, *arguments: str) -> str:
    ran = host.run(["sh", "-c", script, "sh", *arguments])
    if ran.exit_code:
        raise BackendError(f"the unit was not written there: {_last_line(ran)}")
    return ran.stdout.decode(errors="replace").strip()


def _in_command(path: str) -> str:
    """Return a path as a command line of systemd has it within quotes; see ``systemd.service(5)``."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("$", "$$"), ("%", "%%")):
        path = path.replace(character, escaped)
    return path


def _last_line(ran: Completed) -> str:
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {ran.exit_code}"
