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
from workbench.data.code.regular_file import read_beginning
from workbench.errors import UsageError
from workbench.paths import Home

IDENTITY: Final = "home.json"
_IDENTITY_BYTES_MAX: Final = 4096
_UUID_LENGTH: Final = 36
_BESIDE_IDENTITY: Final = ("fabric.db", "controller.lock", "binding.json")
_MOUNTS: Final = "/proc/self/mountinfo"
_USERS: Final = "/etc/passwd"
_FIELDS: Final = 7
_FOLDER: Final = 5
_NO_LOGIN: Final = ("nologin", "false", "true", "sync", "halt", "shutdown")

_SHELL_FILES: Final = (".bashrc", ".profile", ".zshrc")
_PERSONAL: Final = frozenset(
    (
        ".bashrc", ".profile", ".zshrc", ".bash_profile", ".bash_logout", ".bash_history", ".zsh_history",
        ".python_history", ".lesshst", ".viminfo", ".ssh", ".config", ".cache", ".local", ".gnupg", ".aws",
        ".kube", ".docker", ".conda", ".npm", ".pki", ".mozilla", ".ipython", ".jupyter", ".vscode-server",
        ".gitconfig", ".Xauthority", ".sudo_as_admin_successful",
    )
)  # fmt: skip
_PERSONAL_MIN: Final = 3
_LOOKED_AT_MAX: Final = 512
"""Folders in a folder that are looked at for somebody's home."""


def is_home(folder: str) -> bool:
    """Say whether a folder is a home of fabric, ours or another's.

    By the file that names it; where that is damaged, by what else a home has beside it.
    """
    try:
        document: Any = json.loads(read_beginning(f"{folder}/{IDENTITY}", _IDENTITY_BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("format"), int):
        named = document.get("uuid")
        if isinstance(named, str) and len(named) == _UUID_LENGTH:
            return True
    return any(os.path.lexists(f"{folder}/{name}") for name in _BESIDE_IDENTITY)


def looks_like_home(folder: str) -> bool:
    """Say whether a folder is laid out as a person's home folder, whoever they are."""
    if not any(os.path.lexists(f"{folder}/{name}") for name in _SHELL_FILES):
        return False
    try:
        with os.scandir(folder) as entries:
            return sum(entry.name in _PERSONAL for entry in entries) >= _PERSONAL_MIN
    except OSError:
        return True  # a stranger's, which cannot be listed


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
    here = _folder_id(real)
    for person in _home_folders():
        if real == person or here == _folder_id(person):
            return "a whole home folder"
        for above in map(str, Path(person).parents):
            if real == above or here == _folder_id(above):
                return f"above the home folder {person}"
    if _is_root_of_file_system(real):
        return "the root of a file system"
    if lies_in_credentials(real):
        return "a folder of keys and credentials"
    if looks_like_home(real):
        return "laid out as a whole home folder"
    below = _home_in(real)
    return f"above {below}, which is laid out as a home folder" if below else ""


def _folder_id(path: str) -> tuple[int, int] | str:
    """Return what is the same for one folder by all its paths, as a bind mount gives it several."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a text
    except OSError:
        return path
    return found.st_dev, found.st_ino


def _home_folders() -> Iterator[str]:
    """Yield the home folder that the environment names, those that the system knows of us, and of who can log in.

    Other users are those of this machine's own file: a network's directory may take seconds to list, and has homes
    that are laid out as such.
    """
    if folder := os.environ.get("HOME"):
        yield os.path.realpath(folder)
    with suppress(ImportError, KeyError):
        import pwd

        yield os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    with suppress(OSError), open(_USERS, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123 - a text
        for line in stream:
            fields = line.rstrip("\n").split(":")
            if len(fields) == _FIELDS and fields[_FOLDER] and not fields[-1].endswith(_NO_LOGIN):
                yield os.path.realpath(fields[_FOLDER])


def _home_in(folder: str) -> str:
    """Return a folder right in this one that is laid out as a home folder; empty for none.

    A repository may have one for its tests.
    """
    if os.path.lexists(f"{folder}/.git"):
        return ""
    left = _LOOKED_AT_MAX
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                left -= 1
                if looks_like_home(entry.path):
                    return entry.path
                if not left:
                    break
    return ""


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
