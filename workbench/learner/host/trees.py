"""Folders that go home: what is in them, and the files that are asked for, as one stream.

A job may change its folders at any moment, and a container's is hostile: all is read below a root that it cannot
replace (``within``), which is the folder itself where nothing else is named.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
from typing import Any, BinaryIO, Dict, Iterator, List, Sequence, Tuple

from workbench.learner.platform import beneath, open_files
from workbench.learner.platform.beneath import Root
from workbench.learner.platform.errors import Failure


def list_tree(folder: str, within: str = "") -> Dict[str, List[Any]]:
    """Return what is in a folder by relative path: ``[kind, size, modified_ns, mode, target]``.

    Kinds are ``file``, ``folder`` and ``link``; devices, pipes and sockets are left out. A folder that is not
    there is empty.
    """
    found: Dict[str, List[Any]] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _rooted(folder, within) as (root, below):
        for path, descriptor, folders, names in root.walk(below):
            for name in [*folders, *names]:
                with contextlib.suppress(FileNotFoundError):  # a job may still tidy up
                    about = _about(descriptor, name)
                    if about:
                        found[os.path.join(path, name)] = about
    return found


def locate(folder: str, path: str, within: str = "") -> List[Any]:
    """Return where a relative path of a folder really is, then what :func:`list_tree` says of it.

    Nothing where there is none. Links are followed as long as they stay in the folder, or below ``within``.

    Raises:
        Failure: it leads out of the folder, or is neither file nor folder.
    """
    try:
        with _rooted(folder, within) as (root, below):
            real = root.real(os.path.join(below, path))
            about = root.stat(real, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.ELOOP):
            raise
        raise Failure("bad_input", f"{path!r} leads out of the job's folder.") from error
    kind = _kind(about.st_mode)
    if not kind:
        raise Failure("bad_input", f"{path!r} is neither a file nor a folder.")
    size = about.st_size if kind == "file" else 0
    found = os.path.join(within or os.path.realpath(folder), real).rstrip("/")
    return [found, kind, size, about.st_mtime_ns, about.st_mode & 0o777, ""]


def send_files(folder: str, paths: Sequence[str], stream: BinaryIO, within: str = "") -> None:
    """Write files of a folder to a stream, as a tar."""
    with tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 18, format=tarfile.PAX_FORMAT) as tar:
        if any(os.path.isabs(path) or ".." in path.split(os.sep) for path in paths):
            raise Failure("bad_input", f"{paths[0]!r} is not within {folder}.")
        with _rooted(folder, within) as (root, below):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    _send(tar, root, os.path.join(below, path), path)


def open_path_to_all(path: str, within: str) -> None:
    """Let every user who can reach ``within`` also reach and change a file below it."""
    parts = beneath.relative(path, within).split("/")
    with Root(within) as root:
        for count in range(1, len(parts) + 1):
            above = root.open_folder("/".join(parts[: count - 1]))
            try:
                bits = 0o666 if count == len(parts) else 0o777
                with contextlib.suppress(PermissionError):  # its owner lets others in, or not
                    open_files.add_mode(above, parts[count - 1], bits)
            finally:
                os.close(above)


@contextlib.contextmanager
def _rooted(folder: str, within: str) -> Iterator[Tuple[Root, str]]:
    """Open the root that a folder lies in; give it with the folder's path relative to it."""
    with Root(within or folder, follow=not within) as root:
        yield root, beneath.relative(folder, within) if within else ""


def _send(tar: tarfile.TarFile, root: Root, path: str, name: str) -> None:
    """Add a file, folder or link; if it was replaced by anything else meanwhile, it is skipped."""
    try:
        descriptor = root.open(path, os.O_RDONLY, follow=False)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            _send_link(tar, root, path, name)
        elif error.errno != errno.ENXIO:  # a socket
            raise
        return
    try:
        about = os.fstat(descriptor)
        member = _member(name, about)
        if stat.S_ISDIR(about.st_mode):
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
        elif stat.S_ISREG(about.st_mode):
            member.size = about.st_size
            with open(descriptor, "rb", closefd=False) as file:
                tar.addfile(member, file)
    finally:
        os.close(descriptor)


def _send_link(tar: tarfile.TarFile, root: Root, path: str, name: str) -> None:
    member = _member(name, root.stat(path, follow=False))
    member.type, member.linkname = tarfile.SYMTYPE, root.read_link(path)
    tar.addfile(member)


def _member(name: str, about: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(about.st_mode), about.st_mtime
    member.uid, member.gid = about.st_uid, about.st_gid
    return member


def _about(folder: int, name: str) -> List[Any]:
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    kind = _kind(about.st_mode)
    target = os.readlink(name, dir_fd=folder) if kind == "link" else ""
    size = about.st_size if kind == "file" else 0
    return [kind, size, about.st_mtime_ns, about.st_mode & 0o777, target] if kind else []


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else ""
