"""Becomes ``__main__.py`` of the agent's archive, and runs it from an unpacked copy, which starts faster.

Modules in an archive are compiled at every start; those in a folder once. The copy is made by whoever
starts the archive first, where that can be done.
"""

from __future__ import annotations

import _thread
import os
import sys

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


def run() -> None:
    """Run the agent and leave with its exit code."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [unpack(here) if os.path.isfile(here) else here]
    # By name: the agent's own commands unpack archives too, so this module must not depend on them.
    agent = __import__("workbench.learner.main", fromlist=["main"])
    sys.exit(agent.main(sys.argv[1:]))


if __name__ == "__main__":
    run()
