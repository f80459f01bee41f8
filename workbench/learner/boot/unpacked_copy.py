"""Makes the unpacked copy of the agent's archive. It imports nothing of ours: the agent has only the archive then."""

from __future__ import annotations

import _thread
import os

SUFFIX = ".pyz"
_MAIN = "__main__.py"


def unpack(archive: str) -> str:
    """Return the folder of an archive's unpacked copy, made if need be; the archive where that cannot be."""
    folder = archive[: -len(SUFFIX)]
    if not archive.endswith(SUFFIX) or os.path.isdir(folder):
        return _readable(folder, archive)
    # Threads of one controller do this at once, too.
    new = "%s.new-%d-%d" % (folder, os.getpid(), _thread.get_ident())
    try:
        import zipfile

        os.mkdir(new, 0o700)
        with zipfile.ZipFile(archive) as source:
            source.extractall(new)
        os.rename(new, folder)
    except OSError:  # nobody may write here, or another was faster
        import shutil

        shutil.rmtree(new, ignore_errors=True)
    return _readable(folder, archive)


def _readable(folder: str, archive: str) -> str:
    """Return the copy if an agent can be started from it now, else the archive.

    On a mount of rclone's the folder was seen to be there while what lies in it was said not to be.
    """
    try:
        with open(os.path.join(folder, _MAIN), "rb") as file:
            return folder if file.read(1) else archive
    except OSError:
        return archive
