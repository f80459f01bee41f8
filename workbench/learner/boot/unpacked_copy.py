"""Makes the unpacked copy of the agent's archive. It imports nothing of ours: the agent has only the archive then."""

from __future__ import annotations

import _thread
import os
import time

SUFFIX = ".pyz"
_MAIN = "__main__.py"
_FILLING_SECONDS = 60.0
"""A copy is made in a fraction of a second: after so long without another file in it, who was at it has been killed."""


def unpack(archive: str) -> str:
    """Return the folder of an archive's unpacked copy, made if need be; the archive where that cannot be.

    Each file gets its name once it is whole, and the one to start from is the last: where that is, all are. A folder
    that got its name last would be unreadable on a mount of rclone's for as long as that lasts, where files in it had
    been uploaded by then.
    """
    folder = archive[: -len(SUFFIX)]
    if archive.endswith(SUFFIX) and not os.path.exists(os.path.join(folder, _MAIN)) and _claim(folder):
        try:
            _fill(folder, archive)
        except OSError:  # a full disk, or nobody may write here
            import shutil

            shutil.rmtree(folder, ignore_errors=True)
    return _readable(folder, archive)


def _claim(folder: str) -> bool:
    """Make the folder; False where that cannot be, or another is filling it: threads of a controller do so at once."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return _is_left(folder)
    except OSError:
        return False
    return True


def _is_left(folder: str) -> bool:
    """Say whether nobody has added to a folder for so long that who was filling it is gone."""
    try:
        return time.time() - os.stat(folder).st_mtime > _FILLING_SECONDS
    except OSError:
        return False


def _fill(folder: str, archive: str) -> None:
    import zipfile

    with zipfile.ZipFile(archive) as source:
        for name in sorted(source.namelist(), key=_MAIN.__eq__):
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            new = "%s.new-%d-%d" % (path, os.getpid(), _thread.get_ident())
            with open(new, "wb") as file:
                file.write(source.read(name))
            os.rename(new, path)
        os.utime(folder)


def _readable(folder: str, archive: str) -> str:
    """Return the copy if an agent can be started from it now, else the archive.

    On a mount of rclone's the folder was seen to be there while what lies in it was said not to be.
    """
    try:
        with open(os.path.join(folder, _MAIN), "rb") as file:
            return folder if file.read(1) else archive
    except OSError:
        return archive
