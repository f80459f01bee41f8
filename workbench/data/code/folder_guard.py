"""Refuses folders that are never taken as code, or only with ``--code-anyway``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from workbench.data.code.credentials import lies_in_credentials
from workbench.errors import UsageError
from workbench.paths import Home

IDENTITY: Final = "home.json"
_IDENTITY_BYTES_MAX: Final = 4096
_UUID_LENGTH: Final = 36
_MOUNTS: Final = "/proc/self/mountinfo"


def is_home(folder: str) -> bool:
    """Say whether a folder is a home of fabric, ours or another's, by the file that names it."""
    try:
        with open(f"{folder}/{IDENTITY}", "rb") as stream:  # noqa: PTH123 - once a folder
            document: Any = json.loads(stream.read(_IDENTITY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        return False
    named = document.get("uuid")
    return isinstance(named, str) and len(named) == _UUID_LENGTH


def check_chosen(folder: Path, home: Home, *, anyway: bool) -> None:
    """Check that a folder may be taken as code.

    Args:
        folder: the folder.
        home: the home of this installation, which may not exist yet.
        anyway: whether ``--code-anyway`` was given.

    Raises:
        UsageError: it is a home of fabric or in one; or it is somebody's whole home folder, a file system's
            root, a folder above these, or one of keys, and ``anyway`` is false.
    """
    real = os.path.realpath(folder)
    if found := _home_around(real, home):
        where = "a home of fabric" if found == real else f"in a home of fabric ({found})"
        raise UsageError(
            f"the code folder {folder} is {where}, which is never taken as code",
            hint="keep the manifest and the code in a folder of their own, or name that:"
            " fabric run MANIFEST FOLDER",
        )
    if not anyway and (what := _too_broad(real)):
        raise UsageError(
            f"the code folder {folder} is {what}, which is not taken as code unasked",
            hint="name the folder with the code: fabric run MANIFEST FOLDER, fabric run FOLDER -- COMMAND;"
            " --code-anyway (code_anyway: true) takes this one",
        )


def _home_around(real: str, home: Home) -> str:
    ours = os.path.realpath(home.path)
    for path in (real, *map(str, Path(real).parents)):
        if path == ours or is_home(path):
            return path
    return ""


def _too_broad(real: str) -> str:
    if real == os.path.dirname(real):  # noqa: PTH120 - a text
        return "the root of all files"
    for person in _home_folders():
        if real == person:
            return "a whole home folder"
        if person.startswith(f"{real}/"):
            return f"above the home folder {person}"
    if _is_root_of_file_system(real):
        return "the root of a file system"
    return "a folder of keys and credentials" if lies_in_credentials(real) else ""


def _home_folders() -> Iterator[str]:
    """Yield the home folder that the environment names, and the one that the system knows."""
    if folder := os.environ.get("HOME"):
        yield os.path.realpath(folder)
    with suppress(ImportError, KeyError):
        import pwd

        yield os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)


def _is_root_of_file_system(real: str) -> bool:
    """Say whether a whole file system is mounted there; a folder of one, as containers are given, is a project."""
    if not os.path.ismount(real):
        return False
    if not sys.platform.startswith("linux"):
        return True
    found = ""
    with suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123 - a device
        for line in stream:
            part = line.split(" ", 5)
            if _unescaped(part[4]) == real:
                found = part[3]
    return found in ("", "/")


def _unescaped(text: str) -> str:
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, plain)
    return text
