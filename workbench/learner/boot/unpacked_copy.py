"""Makes the unpacked copy of the agent's archive. It imports nothing of ours: the agent has only the archive then."""

from __future__ import annotations

import _thread
import os

SUFFIX = ".pyz"


def unpack(archive: str) -> str:
    """Return the folder of an archive's unpacked copy, made if need be; the archive where that cannot be."""
    folder = archive[: -len(SUFFIX)]
    if not archive.endswith(SUFFIX) or os.path.isdir(folder):
        return folder if os.path.isdir(folder) else archive
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
    return folder if os.path.isdir(folder) else archive
