"""Finds out which Python a job runs with and what is installed for it, by the names of folders: nothing is run."""

from __future__ import annotations

import contextlib
import json
import os
import re

TYPE_CHECKING = False  # the end of every container job waits for this module
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping

_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>[0-9][^-]*)(-.*)?\.(dist|egg)-info$")
_VERSION = re.compile(r"python(?P<version>[0-9]+\.[0-9]+)")


def write_environment(path: str, document: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Write an attempt's ``environment.json``, with the Python that these variables find and what it has installed.

    Packages that the document has already, those of ``requirements:``, are kept.
    """
    from workbench.learner.platform.files import write_files

    python = str(document.get("python") or "") or find_python(variables.get("PATH", os.defpath))
    packages = document.get("packages") or installed_packages(python)
    found = {"python": python, "python_version": python_version(python), "packages": list(packages)}
    write_files({path: json.dumps({**document, **found}) + "\n"})


def find_python(path: str) -> str:
    """Return the first Python on a PATH; empty without one."""
    import shutil

    found = (shutil.which(name, path=path) for name in ("python3", "python"))
    return next((python for python in found if python), "")


def installed_packages(python: str) -> List[str]:
    """List ``name==version`` of what an interpreter's own folders hold, by their names alone."""
    names: List[str] = []
    for folder in _package_folders(python) if python else ():
        with contextlib.suppress(OSError):
            names += os.listdir(folder)
    return distributions(names)


def distributions(names: Iterable[str]) -> List[str]:
    """Return ``name==version`` of each name of a distribution's folder, such as ``torch-2.3.0.dist-info``."""
    matches = (_DISTRIBUTION.match(name) for name in names)
    return sorted({"%s==%s" % (match["name"], match["version"]) for match in matches if match}, key=str.lower)


def python_version(python: str) -> str:
    """Return an interpreter's version as far as names say it, such as ``3.11``; empty where they do not."""
    if not python:
        return ""
    name = os.path.basename(os.path.realpath(python))
    return next(filter(None, map(version_in, (name, *_package_folders(python)))), "")


def version_in(path: str) -> str:
    """Return the version of Python that a path names, such as ``3.11``; empty where it names none."""
    match = _VERSION.search(path)
    return match["version"] if match else ""


def _package_folders(python: str) -> List[str]:
    import glob

    own = os.path.dirname(os.path.dirname(python))
    if os.path.exists(os.path.join(own, "pyvenv.cfg")):
        return sorted(glob.glob(glob.escape(own) + "/lib/python3*/site-packages"))
    # A distribution's python3 is a link to python3.11 in the same folder, and other versions have folders there too.
    real = os.path.realpath(python)
    name = os.path.basename(real)
    version = name if re.fullmatch(r"python3\.\d+", name) else "python3*"
    prefixes: Dict[str, None] = dict.fromkeys((own, os.path.dirname(os.path.dirname(real))))
    patterns = (
        "lib/%s/site-packages" % version,
        "local/lib/%s/dist-packages" % version,
        "lib/%s/dist-packages" % version,
        "lib/python3/dist-packages",
    )
    return [
        folder
        for prefix in prefixes
        for pattern in patterns
        for folder in glob.glob(os.path.join(glob.escape(prefix), pattern))
    ]
