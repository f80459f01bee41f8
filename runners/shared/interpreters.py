"""Finds the interpreter for ``python:`` and the environment variables that select it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import LaunchRequest
from runners.shared.host_facts import HostFacts
from workbench.errors import LaunchRefused
from workbench.values import dataclass

KEPT: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    )
)
"""Variables that pass from the submit's environment to a job on the same machine, besides LC_*."""

_OF_AN_ENVIRONMENT: Final = ("VIRTUAL_ENV", "CONDA_")
_PROXIES: Final = "_proxy"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter, and the variables with which a command finds it."""

    python: str
    """Its path; empty if PATH decides."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment of a command that uses it, PATH included."""
    notes: tuple[str, ...] = ()
    key: str = ""
    """The key of the cached environment that it belongs to, or empty."""


def passed_environment(recorded: Mapping[str, Any], site: HostFacts) -> dict[str, str]:
    """Return the base of a job's environment: the user's on this machine, else the host's.

    Only proxies pass from this machine to another one.
    """
    submitted = {str(name): str(value) for name, value in (recorded.get("environment") or {}).items()}
    if site.here:
        passes = {name: value for name, value in submitted.items() if _passes(name)}
        base = site.environment if "PATH" not in passes else {}
        return {**_only_kept(base), **passes}
    proxies = {name: value for name, value in submitted.items() if name.lower().endswith(_PROXIES)}
    return {**_only_kept(site.environment, site.changed), **proxies}


def find_interpreter(request: LaunchRequest, site: HostFacts, host: Host) -> Interpreter:
    """Find the interpreter that ``python:`` names; for ``requirements`` the one that the environment is built with.

    Raises:
        LaunchRefused: it does not exist on the host.
    """
    environment = passed_environment(request.recorded, site)
    setting = request.spec.python
    if setting.startswith("conda:"):
        return _conda(setting.removeprefix("conda:"), environment, site, host)
    if setting == "PATH":
        return Interpreter("", _without_active(environment))
    if setting in ("current", "requirements"):
        return _current(str(request.recorded.get("python") or ""), environment, site, host)
    python = setting if setting.startswith("/") else str(Path(setting).expanduser())
    return _by_path(python, _without_active(environment), site, host)


def with_first(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return an environment whose PATH begins with a folder."""
    parts = [part for part in environment.get("PATH", "/usr/bin:/bin").split(":") if part != folder]
    return {**environment, "PATH": ":".join([folder, *parts])}


def _current(python: str, environment: dict[str, str], site: HostFacts, host: Host) -> Interpreter:
    if not site.here:
        note = f"the Python is that of {site.hostname}: the active one of this machine does not exist there"
        return Interpreter("", _without_active(environment), (note,))
    if not python:
        return Interpreter("", environment)
    if not host.call("runnable", paths=[python]):
        raise LaunchRefused(
            f"The interpreter {python}, which was active when the job was submitted, no longer exists.",
            hint="Name another one with 'python:', or submit the job again.",
            code="C205",
        )
    if _is_first(python, environment["PATH"]):
        return Interpreter(python, environment)
    return Interpreter(python, with_first(environment, str(Path(python).parent)))


def _by_path(python: str, environment: dict[str, str], site: HostFacts, host: Host) -> Interpreter:
    inside = f"{python}/bin/python"
    found = host.call("runnable", paths=[python, inside])
    if not found:
        raise LaunchRefused(
            f"There is no interpreter {python} on {site.name}.",
            hint="'python:' takes current, PATH, a path, conda:NAME or requirements.",
            code="C205",
        )
    python = found[0]
    folder = Path(python).parent
    variables = with_first(environment, str(folder))
    if host.call("existing", paths=[str(folder.parent / "pyvenv.cfg")]):
        variables["VIRTUAL_ENV"] = str(folder.parent)
    return Interpreter(python, variables)


def _conda(name: str, environment: dict[str, str], site: HostFacts, host: Host) -> Interpreter:
    folder = host.call("find_conda", name=name, environment=environment)
    if not folder:
        raise LaunchRefused(
            f"There is no conda environment {name!r} on {site.name}.",
            hint="See 'conda env list'; a path works, too: 'python: conda:/path/of/environment'.",
            code="C205",
        )
    variables = with_first(_without_active(environment), f"{folder}/bin")
    variables |= {"CONDA_PREFIX": folder, "CONDA_DEFAULT_ENV": name, "CONDA_SHLVL": "1"}
    return Interpreter(f"{folder}/bin/python", variables)


def _is_first(python: str, path: str) -> bool:
    """Return whether ``python`` or ``python3`` on a PATH is in the interpreter's folder."""
    for name in ("python", "python3"):
        found = shutil.which(name, path=path)
        if found and Path(found).parent == Path(python).parent:
            return True
    return False


def _without_active(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of an active virtual or conda environment."""
    active = [environment.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    folders = {f"{folder}/bin" for folder in active if folder}
    kept = {name: value for name, value in environment.items() if not name.startswith(_OF_AN_ENVIRONMENT)}
    if folders:
        kept["PATH"] = ":".join(part for part in kept.get("PATH", "").split(":") if part not in folders)
    return kept


def _passes(name: str) -> bool:
    return name in KEPT or name.startswith(("LC_", *_OF_AN_ENVIRONMENT))


def _only_kept(environment: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    kept = {*KEPT, *more}
    return {name: value for name, value in environment.items() if name in kept or name.startswith("LC_")}
