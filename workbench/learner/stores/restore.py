"""Brings back what attempts before have stored, so that a job goes on anywhere from where it was.

rclone writes by path, so it writes outside the folder that a container may change; the result is then moved in.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat

from workbench.learner.platform import beneath, open_files
from workbench.learner.stores.checkpoints import MARK, OTHER_MARK
from workbench.learner.stores.errors import TransferError, explain, is_missing
from workbench.learner.stores.inventory import list_store
from workbench.learner.stores.job_lock import job_lock
from workbench.learner.stores.rclone import TRIES
from workbench.learner.stores.sources import LINK_SUFFIX, UploadLedger, sources_of

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.stores.config import Stores
    from workbench.learner.stores.progress import ProgressReporter
    from workbench.learner.stores.rclone import RcloneClient, StopCheck

TRANSFERS = 8
MARKS = (MARK, OTHER_MARK)
OURS = ("/learner-[0-9]*/**", "/_checkpoints/**")
"""What lies next to a job's results in the store and is not a result."""


def restore(stores: Stores, rclone: RcloneClient, progress: ProgressReporter, check_stop: StopCheck) -> None:
    """Copy checkpoints and results back that another host or attempt has stored; what is newer here stays.

    Raises:
        StoreTrouble: the store does not give them.
    """
    results = stores.results
    assert results is not None
    if results.get("bound"):
        return
    shared = not stores.checkpoints.startswith("%s/" % results["path"])
    with job_lock(stores.job_folder, check_stop):
        ledger = UploadLedger(stores.job_folder, stores.launch.attempt)
        ledger.read()
        if ledger.restored == stores.launch.attempt:
            return  # by another learner at this host, and what changed since is this host's
        several = stores.restores or ledger.is_shared
        here = ledger.attempt >= stores.launch.attempt - 1 and not several
        sources = sources_of("", stores) if several else []
        if several:
            ledger.begin_restore(sources)
        if stores.checkpoint_dir and stores.checkpoints and (shared or not here):
            excluded = _unmarked(stores, rclone, check_stop)
            _restore_folder(
                stores.checkpoints, stores.checkpoint_dir, excluded, stores, rclone, progress, check_stop
            )
        if stores.result_dir and not here:
            _restore_folder(
                str(results["path"]), stores.result_dir, OURS, stores, rclone, progress, check_stop
            )
        if several:
            ledger.end_restore(sources, shared=stores.restores)


def _restore_folder(
    source: str,
    target: str,
    excluded: tuple[str, ...],
    stores: Stores,
    rclone: RcloneClient,
    progress: ProgressReporter,
    check_stop: StopCheck,
) -> None:
    results = stores.results
    assert results is not None
    progress.begin("restores %s" % source)
    arguments = ["--fast-list", "--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS), *TRIES]
    for pattern in excluded:
        arguments += ["--exclude", pattern]
    landing = Landing(stores, target, update=True)
    origin = "%s:%s" % (results["remote"], source)
    arguments = ["copy", origin, landing.path, *landing.options, *arguments]
    done = rclone.run(arguments, check_stop=check_stop, on_statistics=progress.take)
    if done.code and not is_missing(done.messages):  # nothing was stored yet
        raise explain(done.messages, store=results["id"], address=results["address"])
    landing.move()


def begin_with(
    stores: Stores, rclone: RcloneClient, progress: ProgressReporter, check_stop: StopCheck
) -> None:
    """Bring the checkpoint of another job that this one is to begin with, unless it is there.

    Raises:
        StoreTrouble: it cannot be had.
    """
    origin, name = stores.origin, str(stores.origin["name"])
    with job_lock(stores.job_folder, check_stop):
        if name and os.path.lexists(os.path.join(stores.checkpoint_dir, name)):
            return
        progress.begin("downloads the checkpoint %s of %s" % (name, origin["job"]))
        if origin.get("local"):
            copy_local(str(origin["local"]), name, stores)
            return
        assert stores.results is not None
        source = "%s:%s" % (stores.results["remote"], origin["path"])
        landing = Landing(stores, stores.checkpoint_dir, update=False)
        _restore_checkpoint(
            source,
            os.path.join(landing.path, name),
            [*landing.options, *TRIES],
            stores,
            rclone,
            progress,
            check_stop,
        )
        landing.move()


def _restore_checkpoint(
    source: str,
    target: str,
    options: list[str],
    stores: Stores,
    rclone: RcloneClient,
    progress: ProgressReporter,
    check_stop: StopCheck,
) -> None:
    copied = rclone.run(
        ["copy", source, target, *options], check_stop=check_stop, on_statistics=progress.take
    )
    if not copied.code:
        return
    # A file, with its mark next to it.
    done = rclone.run(["copyto", source, target, *options], check_stop=check_stop)
    if done.code:
        results = stores.results or {}
        raise explain(done.messages, store=str(results.get("id")), address=str(results.get("address")))
    mark = "." + MARK
    rclone.run(["copyto", source + mark, target + mark, *TRIES], check_stop=check_stop)


def _unmarked(stores: Stores, rclone: RcloneClient, check_stop: StopCheck) -> tuple[str, ...]:
    """Return what is left out of checkpoints: where some have their mark, those without were never finished."""
    results = stores.results
    assert results is not None
    location = {**results, "path": stores.checkpoints, "etags": False}
    try:
        files = list_store(rclone, location, check_stop).files
    except TransferError as error:
        if error.transient:
            raise
        return ()  # nothing was stored yet
    folders = {path.partition("/")[0] for path in files if "/" in path}
    marked = {folder for folder in folders if files.keys() & {"%s/%s" % (folder, mark) for mark in MARKS}}
    return tuple("/%s/**" % _literal(folder) for folder in sorted(folders - marked)) if marked else ()


def _literal(name: str) -> str:
    """Return a name as a pattern that means just it."""
    return "".join("\\" + sign if sign in "*?[]{}\\" else sign for sign in name)


class Landing:
    """Where rclone writes what goes into a folder, which may be the folder itself where nobody else writes.

    It goes through any link that it meets. So links come as files that say where they lead, and what has landed is
    moved from the folder's own descriptor on.

    Args:
        stores: of the learner.
        target: the folder.
        update: whether what is newer there stays; else it is replaced.
    """

    def __init__(self, stores: Stores, target: str, *, update: bool) -> None:
        self._target = target
        self._writable = stores.launch.writable
        self._update = update
        self._is_direct = not beneath.root_of(target, self._writable)
        self.path = target
        """Where to write."""
        self.options = ["--links", "--update"] if update else ["--links"]
        if not self._is_direct:
            self.path = os.path.join(stores.job_folder, "landing-%d" % stores.launch.learner)
            # What is there already is only compared.
            self.options = ["--compare-dest", target] if update else []
            shutil.rmtree(self.path, ignore_errors=True)
            os.mkdir(self.path, 0o700)

    def move(self) -> None:
        """Move what has landed to where it belongs."""
        if self._is_direct:
            return
        with beneath.Root(self.path) as landed, beneath.opened(self._target, self._writable) as (root, below):
            for path, folder, _, names in landed.walk():
                if names:
                    into = root.make_folder(os.path.join(below, path), 0o755)
                    try:
                        for name in names:
                            self._move_one(folder, name, into)
                    finally:
                        os.close(into)
        shutil.rmtree(self.path, ignore_errors=True)

    def _move_one(self, folder: int, name: str, into: int) -> None:
        to = name[: -len(LINK_SUFFIX)] if name.endswith(LINK_SUFFIX) else name
        there = _stat(into, to)
        if there is not None:
            landed = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(there.st_mode) or (self._update and there.st_mtime_ns > landed.st_mtime_ns):
                return
        if to != name:
            _make_link(folder, name, into, to)
            return
        try:
            os.rename(name, to, src_dir_fd=folder, dst_dir_fd=into)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            open_files.copy_file(folder, name, into, to)


def copy_local(source: str, name: str, stores: Stores) -> None:
    """Copy a checkpoint of another job of this machine, whose container may have put links into the way to it.

    Args:
        source: the checkpoint.
        name: what it is called below the folder for checkpoints; empty where it is that folder.
        stores: of the learner.

    Raises:
        StoreTrouble: it cannot be had.
    """
    folder = source[: -len(name)] if name and source.endswith("/" + name) else source
    try:
        ours = beneath.opened(stores.checkpoint_dir, stores.launch.writable)
        with beneath.Root(os.path.join(folder, ".")) as theirs, ours as (root, below):
            into = os.path.join(below, name)
            if stat.S_ISDIR(theirs.stat(name).st_mode):
                beneath.copy_tree(theirs, name, root, into)
            else:
                _copy_file(theirs, name, root, into)
    except OSError as error:
        text = "the checkpoint %s cannot be copied: %s" % (source, error.strerror or error)
        raise TransferError(text, "S101") from error


def _copy_file(theirs: beneath.Root, name: str, root: beneath.Root, into: str) -> None:
    """Copy a checkpoint that is a file, with its mark, if it has one."""
    above = root.make_folder(os.path.dirname(into), 0o755)
    try:
        for suffix in ("", "." + MARK):
            try:
                descriptor = theirs.open_file(name + suffix)
            except FileNotFoundError:
                if not suffix:
                    raise
                continue
            try:
                open_files.copy_open(descriptor, above, os.path.basename(into) + suffix)
            finally:
                os.close(descriptor)
    finally:
        os.close(above)


def _make_link(folder: int, name: str, into: int, to: str) -> None:
    with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
        says = file.read()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(to, dir_fd=into)
    os.symlink(says, os.fsencode(to), dir_fd=into)


def _stat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
