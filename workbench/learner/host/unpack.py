"""Archives of code are unpacked here, whole or not at all; nothing lands or leads outside their folder."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib

from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders, remove

_CHUNK_BYTES = 256 * 1024


def unpack(archive: str, folder: str) -> bool:
    """Unpack a tar.gz into a folder that is not there yet, whole or not at all; False if it is there already.

    Raises:
        Failure: the archive holds what would land, or lead, outside the folder, or is no archive.
    """
    if os.path.isdir(folder):
        return False
    parent = os.path.dirname(folder)
    make_folders([parent])
    beside = tempfile.mkdtemp(prefix=f".{os.path.basename(folder)}.", dir=os.path.realpath(parent))
    try:
        if archive:
            _extract(archive, beside)
        return _put_in_place(beside, folder)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Failure("bad_input", f"The archive {archive} cannot be unpacked: {error}.") from error
    finally:
        if os.path.isdir(beside):
            remove([beside])


def _put_in_place(beside: str, folder: str) -> bool:
    try:
        os.rename(beside, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
        return False  # another launch was quicker
    return True


def _extract(archive: str, folder: str) -> None:
    with tarfile.open(archive, "r:*") as tar:
        links = []
        for member in tar:
            path = _inside(folder, member.name)
            if member.isdir():
                os.makedirs(path, exist_ok=True)
            elif member.isreg():
                _write_member(tar, member, path)
            elif member.issym() or member.islnk():
                _check_link(folder, path, member)
                links.append((member, path))
            else:
                raise Failure("bad_input", f"The archive {archive} holds a device or pipe, {member.name!r}.")
        # Links last: nothing is ever written through one.
        for member, path in links:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if member.issym():
                os.symlink(member.linkname, path)
            else:
                shutil.copy2(_inside(folder, member.linkname), path, follow_symlinks=False)
        # Each link may be innocent and two together not.
        for member, path in links:
            _check_inside(folder, os.path.realpath(path), member)


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with open(path, "wb") as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
    os.chmod(path, member.mode & 0o777 | 0o600)
    os.utime(path, (member.mtime, member.mtime))


def _inside(folder: str, name: str) -> str:
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(name) or not (path + os.sep).startswith(folder + os.sep):
        raise Failure("bad_input", f"The archive holds {name!r}, which would land outside its folder.")
    return path


def _check_link(folder: str, path: str, member: tarfile.TarInfo) -> None:
    start = os.path.dirname(path) if member.issym() else folder
    _check_inside(folder, os.path.normpath(os.path.join(start, member.linkname)), member)


def _check_inside(folder: str, target: str, member: tarfile.TarInfo) -> None:
    if not (target + os.sep).startswith(folder + os.sep):
        raise Failure("bad_input", f"The archive holds a link out of its folder, {member.name!r}.")
