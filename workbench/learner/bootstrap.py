"""Becomes ``__main__.py`` of the agent's archive, and runs it from an unpacked copy, which starts faster.

Modules in an archive are compiled at every start; those in a folder once. The copy is made by whoever
starts the archive first, where that can be done. What is compiled is kept whole or not at all: Python itself
writes half of it on a full disk, and the agent would never start again.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys

# By this name nothing has to be read: Python has it from its own start on.
from _frozen_importlib_external import SOURCE_SUFFIXES, FileFinder, SourceFileLoader, cache_from_source

SUFFIX = ".pyz"
"""Of an archive that a copy is made of; ``boot.unpacked_copy``, which is still packed then, says the same."""

SPARED_BYTES = 4 << 20
"""Where less is free compiled modules are not kept: the room is the jobs'."""

GARBAGE_THRESHOLDS = 50_000, 20, 20
"""Importing makes many objects and no garbage; looking for it after every 700 of them is a part of a start."""


class CheckedLoader(SourceFileLoader):
    """Imports modules as Python does; what it compiled is kept only whole, and what is broken is made again."""

    def get_code(self, fullname):  # type: ignore[no-untyped-def] # types are those of the loader that it is made of
        """Return a module's code."""
        try:
            return super().get_code(fullname)
        except (EOFError, ImportError, TypeError, ValueError):
            path = self.get_filename(fullname)
            _remove(cache_from_source(path))
            return self.source_to_code(self.get_data(path), path)

    def set_data(self, path, data, *, _mode=0o666):  # type: ignore[no-untyped-def] # as above
        """Keep a module's compiled code; nothing where the disk has little room or does not take all of it."""
        new = "%s.new-%d-%d" % (path, os.getpid(), _thread.get_ident())
        try:
            # Not what is above it: the mount that the module lies on may have ended while it was compiled.
            _make_folder(os.path.dirname(path))
            room = os.statvfs(os.path.dirname(path))
            if room.f_bavail * room.f_frsize < SPARED_BYTES:
                return
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _mode & 0o666)
            try:
                is_whole = os.write(descriptor, data) == len(data)
            finally:
                os.close(descriptor)
            if is_whole:
                os.rename(new, path)
                return
        except OSError:
            pass  # a full disk, or a folder of somebody else's: it is compiled at each start
        _remove(new)


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # it is not there, or somebody else's


def _import_checked(folder: str) -> None:
    """Import what lies below a folder by the loader that checks."""

    def find_in(path: str) -> FileFinder:
        if path != folder and not path.startswith(folder + os.sep):
            raise ImportError
        return FileFinder(path, (CheckedLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, find_in)
    sys.path_importer_cache.pop(folder, None)


def run() -> None:
    """Run the agent and leave with its exit code."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    here = os.path.dirname(os.path.abspath(__file__))
    folder = _unpacked(here) if os.path.isfile(here) else here
    sys.path[:0] = [folder]
    if os.path.isdir(folder):
        _import_checked(folder)
    from workbench.learner.main import main

    _leave(main(sys.argv[1:]))


def _unpacked(archive: str) -> str:
    """Return the folder of our unpacked copy, or the archive that we are in where there can be none."""
    if not archive.endswith(SUFFIX):
        return archive
    copy = archive[: -len(SUFFIX)]
    if os.path.isfile(os.path.join(copy, "__main__.py")):  # else who unpacks it knows more
        return copy
    # 4 ms: Python compiles what it takes from the archive. A start that finds the copy does without.
    from workbench.learner.boot.unpacked_copy import unpack

    if unpack(archive) == archive:
        return archive
    # What came out of the archive would look for its modules there.
    for name in [name for name in sys.modules if name.partition(".")[0] == "workbench"]:
        del sys.modules[name]
    return copy


def _leave(code: int) -> None:
    """End this process; taking the interpreter apart would take a tenth of a short learner's processor time."""
    if "threading" in sys.modules or "atexit" in sys.modules:
        sys.exit(code)  # there may be something to be waited for, or to be done
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python's own end knows what to say of it
    os._exit(code)


if __name__ == "__main__":
    run()
