"""What earlier attempts made elsewhere goes into a job's folders here: file by file, and what is newer here stays."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Mapping, Sequence

from workbench.learner.platform import open_files
from workbench.learner.platform.beneath import Root
from workbench.learner.platform.files import remove

SMALL = "small.tar.gz"
"""The archive with links and small files in a folder of what was sent; below it a folder for each name."""

LARGE = "large"
"""The folder beside it with all others, below the same names."""


def merge_sent(sent: str, into: Mapping[str, str], modified_ns: Mapping[str, int]) -> None:
    """Move what was sent into where it belongs; the folder of what was sent goes.

    Args:
        sent: the folder, with ``small.tar.gz`` and ``large``.
        into: the folders that files go to, by name.
        modified_ns: when files were changed last, by name and path in it.

    Raises:
        Failure: the archive is none, or holds what leads out of its folder.
    """
    small, archive = os.path.join(sent, "small"), os.path.join(sent, SMALL)
    if os.path.exists(archive):
        from workbench.learner.host.unpack import unpack

        remove([small])  # what a merge has left that was cut off
        unpack(archive, small)
    for folder in (small, os.path.join(sent, LARGE)):
        for path, changed_ns in modified_ns.items():
            with contextlib.suppress(FileNotFoundError):  # it is in the other one
                os.utime(os.path.join(folder, path), ns=(changed_ns, changed_ns), follow_symlinks=False)
        for name, target in into.items():
            merge_tree(os.path.join(folder, name), target)
    remove([sent])


def remove_deleted(into: Mapping[str, str], deleted: Mapping[str, Sequence[str]]) -> None:
    """Remove files and links, by folder, that the job has deleted at another host, and the folders that this empties.

    Nothing is removed outside of these folders, whatever links a job has put into the way.
    """
    for name, paths in deleted.items():
        with contextlib.suppress(FileNotFoundError), Root(into[name], follow=True) as root:
            for path in paths:
                with contextlib.suppress(
                    OSError
                ):  # it is gone, or holds something else, or is another user's
                    root.unlink(path)
                    while "/" in path:
                        path = os.path.dirname(path)
                        above = root.open_folder(os.path.dirname(path))
                        try:
                            os.rmdir(os.path.basename(path), dir_fd=above)
                        finally:
                            os.close(above)


def merge_tree(source: str, target: str) -> None:
    """Move all files and links of a folder into another one, where those stay that are newer; no link is followed.

    A job may have put links into the way: nothing is written outside of the target.
    """
    if not os.path.isdir(source):
        return
    with Root(source) as ours, Root(target, follow=True) as theirs:
        for path, folder, _, names in ours.walk():
            if names:
                into = theirs.make_folder(path, 0o755)
                try:
                    for name in names:
                        _move(folder, name, into)
                finally:
                    os.close(into)


def _move(folder: int, name: str, into: int) -> None:
    here = os.stat(name, dir_fd=folder, follow_symlinks=False)
    try:
        there = os.stat(name, dir_fd=into, follow_symlinks=False)
    except FileNotFoundError:
        there = None
    if there is not None and (stat.S_ISDIR(there.st_mode) or there.st_mtime_ns > here.st_mtime_ns):
        return
    try:
        os.rename(name, name, src_dir_fd=folder, dst_dir_fd=into)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        open_files.copy_file(folder, name, into, name)
