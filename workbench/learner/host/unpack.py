"""Archives of code are unpacked here, whole or not at all; nothing lands or leads outside their folder."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from typing import Dict, Mapping, Sequence

from workbench.learner.platform.chains import leading_out, through_links
from workbench.learner.platform.errors import Failure, naming
from workbench.learner.platform.files import is_put, make_folders, put_folder, remove, remove_put

BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a damaged archive raises."""

_CHUNK_BYTES = 256 * 1024


def unpack(archive: str, folder: str) -> bool:
    """Unpack a tar.gz into a folder that is not there yet, whole or not at all; False if it is there already.

    Raises:
        Failure: the archive holds what would land, or lead, outside the folder, or is not an archive.
    """
    if is_put(folder):
        return False
    parent = os.path.dirname(folder)
    make_folders([parent])
    temporary = tempfile.mkdtemp(prefix=f".{os.path.basename(folder)}.", dir=os.path.realpath(parent))
    try:
        if archive:
            with naming(folder):
                _extract(archive, temporary)
        return put_in_place(temporary, folder)
    except BROKEN as error:
        raise Failure("bad_input", f"The archive {archive} cannot be unpacked: {error}.") from error
    finally:
        if os.path.isdir(temporary):
            remove([temporary])


def put_in_place(temporary: str, folder: str) -> bool:
    """Give a folder its name; False if another launch was quicker."""
    if os.path.isdir(folder) and not is_put(folder):
        remove_put(folder)  # what a launch has left that was killed as it did this
    try:
        put_folder(temporary, folder)
    except OSError:
        if not is_put(folder):
            raise
        return False  # another launch was quicker
    return True


def _extract(archive: str, folder: str) -> None:
    links: Dict[str, str] = {}
    copies: Dict[str, str] = {}
    with tarfile.open(archive, "r:*") as tar:
        paths = []
        for member in tar:
            path = inside(folder, member.name)
            paths.append(os.path.relpath(path, folder))
            if member.isdir():
                make_folders([path], mode=0o777)
            elif member.isreg():
                _write_member(tar, member, path)
            elif member.issym():
                links[paths[-1]] = member.linkname
            elif member.islnk():
                copies[path] = inside(folder, member.linkname)
            else:
                raise Failure("bad_input", f"The archive {archive} holds a device or pipe, {member.name!r}.")
    refuse_links(paths, links)
    # Links last: nothing is ever read or written through one.
    for path, source in copies.items():
        make_folders([os.path.dirname(path)], mode=0o777)
        shutil.copy2(source, path, follow_symlinks=False)
    for name, target in links.items():
        path = os.path.join(folder, name)
        make_folders([os.path.dirname(path)], mode=0o777)
        make_link(target, path)


def make_link(target: str, path: str) -> None:
    """Make a symbolic link of a job's code.

    Raises:
        Failure: the file system has none (exFAT): another try would not help.
    """
    try:
        os.symlink(target, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        text = (
            f"The code has a symbolic link, {os.path.basename(path)}, and the file system of {path} has none."
        )
        hint = "Name it in .fabricignore, or keep the jobs on another file system (FABRIC_HOME here)."
        raise Failure("bad_input", text, hint) from error


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    make_folders([os.path.dirname(path)], mode=0o777)
    source = tar.extractfile(member)
    assert source is not None
    with open(path, "wb") as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
    os.chmod(path, member.mode & 0o777 | 0o600)
    os.utime(path, (member.mtime, member.mtime))


def refuse_links(paths: Sequence[str], links: Mapping[str, str]) -> None:
    """Refuse links that lead out of their folder, alone or together, and paths that go through a link."""
    for path in [*leading_out(links), *through_links(paths, links)]:
        raise Failure("bad_input", f"The archive holds a link out of its folder, {path!r}.")


def inside(folder: str, name: str) -> str:
    """Return where a member belongs; refuse one that would land outside the folder."""
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(name) or not (path + os.sep).startswith(folder + os.sep):
        raise Failure("bad_input", f"The archive holds {name!r}, which would land outside its folder.")
    return path
