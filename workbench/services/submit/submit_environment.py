"""What is recorded of where a job is submitted: interpreter, packages, passed variables, machine.

Nothing here runs a program, since all of it is on the way of every start; what only the backend knows (image
digest, resolved requirements) is recorded there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from workbench.learner.host.packages import installed_packages
from workbench.version import VERSION

PASSED: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SHELL", "TMPDIR", "VIRTUAL_ENV")
PASSED_PREFIXES: Final = ("LC_", "CONDA_")
PROXIES: Final = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")

TRACKING_PREFIXES: Final = ("WANDB_", "MLFLOW_", "TRACKIO_", "DATABRICKS_", "TENSORBOARD_")

_CREDENTIALS: Final = re.compile(r"//[^/@\s]+@")


def active_interpreter(environ: Mapping[str, str] = os.environ) -> str:
    """Return the Python that a person means: the active environment's, else the first on PATH, else ours."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := environ.get(variable):
            python = Path(prefix) / "bin" / "python"
            if python.exists():
                return str(python)
    for name in ("python3", "python"):
        if found := shutil.which(name, path=environ.get("PATH")):
            return str(_behind_shim(Path(found).absolute(), environ))
    return sys.executable


def _behind_shim(python: Path, environ: Mapping[str, str]) -> Path:
    """Return what pyenv's stand-in would start here: what it starts depends on the folder, and must not later."""
    versions = python.parent.parent / "versions"
    if python.parent.name != "shims" or not versions.is_dir():
        return python
    folders = [Path(_working_folder() or "/")]
    files = [folder / ".python-version" for folder in (*folders, *folders[0].parents)]
    texts = [environ.get("PYENV_VERSION", "").replace(":", " ")]
    texts += [
        file.read_text(errors="replace")
        for file in (*files, python.parent.parent / "version")
        if file.is_file()
    ]
    for version in next((text.split() for text in texts if text.strip()), []):
        # A part of a version stands for the newest that begins with it.
        exact = versions / version / "bin" / python.name
        if (
            found := [exact]
            if exact.exists()
            else sorted(versions.glob(f"{version}.*/bin/{python.name}"), key=_newest)
        ):
            return found[-1]
    return python


def _newest(python: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", python.parent.parent.name)]


def passed_environment(environ: Mapping[str, str] = os.environ) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables that a process learner inherits, and those of them that hold a password.

    A proxy's address may carry credentials: it is handed on as a secret then, and is in no record.
    """
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, value in environ.items():
        if name.lower() in PROXIES:
            (secret if _CREDENTIALS.search(value) else plain)[name] = value
        elif name in PASSED or name.startswith(PASSED_PREFIXES):
            plain[name] = value
    return plain, secret


def own_tracking(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of variables by which the user has set up libraries that record metrics; no values.

    wandb keeps its key in ``~/.netrc``, which counts as ``WANDB_API_KEY``.
    """
    found = {name for name in environ if name.startswith(TRACKING_PREFIXES)}
    netrc = Path(environ.get("NETRC") or Path.home() / ".netrc")
    with contextlib.suppress(OSError, RuntimeError):
        if re.search(r"machine\s+\S*wandb\S*", netrc.read_text(encoding="utf-8", errors="replace")):
            found.add("WANDB_API_KEY")
    return sorted(found)


def machine() -> dict[str, Any]:
    """Describe this machine as far as files tell."""
    system = os.uname()
    described: dict[str, Any] = {
        "name": socket.gethostname(),
        "system": system.sysname,
        "release": system.release,
        "architecture": system.machine,
        "cpus": os.cpu_count() or 1,
    }
    if "SC_PHYS_PAGES" in os.sysconf_names:
        described["memory_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    driver = Path("/proc/driver/nvidia/version")
    if driver.exists():
        described["gpu_driver"] = driver.read_text(errors="replace").splitlines()[0].strip()
        described["gpus"] = [
            _gpu_model(path) for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        ]
    return described


def _gpu_model(information: Path) -> str:
    lines = information.read_text(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Model")), "")


def caller_umask() -> str:
    """Return the umask of this process in octal, such as ``0022``."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("Umask:"):
            return line.split()[1]
    # Elsewhere it can only be read by changing it for a moment.
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:04o}"


def record(python: str, argv: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what design's section 9 wants of the client; git and code are added by who knows the folder."""
    return {
        "fabric": VERSION,
        "python": python,
        "environment": dict(environment),
        "cwd": _working_folder(),
        "host": machine(),
        "packages": installed_packages(python),
        "argv": argv,
        **({"tracking": tracking} if (tracking := own_tracking()) else {}),
    }


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""
