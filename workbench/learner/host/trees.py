"""Folders that go home: what is in them, and the files that are asked for, as one stream."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from typing import Any, BinaryIO, Dict, List, Sequence

from workbench.learner.platform.errors import Failure


def list_tree(folder: str) -> Dict[str, List[Any]]:
    """Return what is in a folder by relative path: ``[kind, size, modified_ns, mode, target]``.

    Kinds are ``file``, ``folder`` and ``link``; devices, pipes and sockets are left out. A folder that is not
    there is empty.
    """
    found: Dict[str, List[Any]] = {}
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = os.path.join(parent, name)
            with contextlib.suppress(FileNotFoundError):  # a job may still tidy up
                about = os.lstat(path)
                kind = _kind(about.st_mode)
                if kind:
                    target = os.readlink(path) if kind == "link" else ""
                    size = about.st_size if kind == "file" else 0
                    modified = about.st_mtime_ns
                    told = [kind, size, modified, about.st_mode & 0o777, target]
                    found[os.path.relpath(path, folder)] = told
    return found


def locate(folder: str, path: str) -> List[Any]:
    """Return where a relative path of a folder really is, then what :func:`list_tree` says of it.

    Nothing where there is none. Links are followed as long as they stay in the folder.

    Raises:
        Failure: it leads out of the folder, or is neither file nor folder.
    """
    root = os.path.realpath(folder)
    found = os.path.realpath(os.path.join(root, path))
    if found != root and not found.startswith(root + os.sep):
        raise Failure("bad_input", f"{path!r} leads out of the job's folder.")
    try:
        about = os.lstat(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    kind = _kind(about.st_mode)
    if not kind:
        raise Failure("bad_input", f"{path!r} is neither a file nor a folder.")
    size = about.st_size if kind == "file" else 0
    return [found, kind, size, about.st_mtime_ns, about.st_mode & 0o777, ""]


def send_files(folder: str, paths: Sequence[str], stream: BinaryIO) -> None:
    """Write files of a folder to a stream, as a tar."""
    with tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 18, format=tarfile.PAX_FORMAT) as tar:
        for path in paths:
            if os.path.isabs(path) or ".." in path.split(os.sep):
                raise Failure("bad_input", f"{path!r} is not within {folder}.")
            with contextlib.suppress(FileNotFoundError):
                tar.add(os.path.join(folder, path), arcname=path, recursive=False)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else ""
