"""Brings back what attempts before have stored, so that a job goes on anywhere from where it was."""

from __future__ import annotations

import fcntl
import os
import time

from workbench.learner.stores.checkpoints import MARK, OTHER_MARK
from workbench.learner.stores.errors import StoreTrouble, explain, is_missing
from workbench.learner.stores.listing import list_store
from workbench.learner.stores.rclone import TRIES
from workbench.learner.stores.sources import Stored

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.stores.config import Stores
    from workbench.learner.stores.progress import Teller
    from workbench.learner.stores.rclone import Look, Rclone

TRANSFERS = 8
MARKS = (MARK, OTHER_MARK)
OURS = ("/learner-[0-9]*/**", "/_checkpoints/**")
"""What lies beside a job's results in the store and is no result of its."""

_LOOK_SECONDS = 0.2


def restore(stores: Stores, rclone: Rclone, teller: Teller, look: Look) -> None:
    """Copy checkpoints and results back that another place or attempt has stored; what is newer here stays.

    Raises:
        StoreTrouble: the store does not give them.
    """
    results = stores.results
    assert results is not None
    if results.get("bound"):
        return
    shared = not stores.checkpoints.startswith("%s/" % results["path"])
    lock = _locked(os.path.join(stores.job_folder, "storing.lock"), look)
    try:
        stored = Stored(stores.job_folder, stores.launch.attempt)
        stored.read()
        here = stored.attempt >= stores.launch.attempt - 1
        if stores.checkpoint_dir and stores.checkpoints and (shared or not here):
            but = _unmarked(stores, rclone, look)
            _bring(stores.checkpoints, stores.checkpoint_dir, but, stores, rclone, teller, look)
        if stores.result_dir and not here:
            _bring(str(results["path"]), stores.result_dir, OURS, stores, rclone, teller, look)
    finally:
        os.close(lock)


def _bring(
    source: str, target: str, but: tuple[str, ...], stores: Stores, rclone: Rclone, teller: Teller, look: Look
) -> None:
    results = stores.results
    assert results is not None
    teller.begin("brings back what is in %s" % source)
    arguments = ["copy", "%s:%s" % (results["remote"], source), target, "--links", "--update", "--fast-list"]
    arguments += ["--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS)]
    arguments += TRIES
    for pattern in but:
        arguments += ["--exclude", pattern]
    done = rclone.run(arguments, look=look, on_statistics=teller.take)
    if done.code and not is_missing(done.messages):  # nothing was stored yet
        raise explain(done.messages, store=results["id"], address=results["address"])


def begin_with(stores: Stores, rclone: Rclone, teller: Teller, look: Look) -> None:
    """Bring the checkpoint of another job that this one is to begin with, unless it is there.

    Raises:
        StoreTrouble: it cannot be had.
    """
    origin = stores.origin
    target = os.path.join(stores.checkpoint_dir, str(origin["name"]))
    lock = _locked(os.path.join(stores.job_folder, "storing.lock"), look)
    try:
        if origin["name"] and os.path.lexists(target):
            return
        teller.begin("brings the checkpoint %s of %s" % (origin["name"], origin["job"]))
        source = str(origin.get("local") or "")
        if not source:
            assert stores.results is not None
            source = "%s:%s" % (stores.results["remote"], origin["path"])
        copied = rclone.run(["copy", source, target, "--links", *TRIES], look=look, on_statistics=teller.take)
        if copied.code:
            # A file, with its mark beside it.
            done = rclone.run(["copyto", source, target, "--links", *TRIES], look=look)
            if done.code:
                told = stores.results or {"id": str(origin["job"]), "address": source}
                raise explain(done.messages, store=told["id"], address=told["address"])
            mark = "." + MARK
            rclone.run(["copyto", source + mark, target + mark, *TRIES], look=look)
    finally:
        os.close(lock)


def _unmarked(stores: Stores, rclone: Rclone, look: Look) -> tuple[str, ...]:
    """Return what is left out of checkpoints: where some have their mark, those without were never finished."""
    results = stores.results
    assert results is not None
    told = {**results, "path": stores.checkpoints, "etags": False}
    try:
        files = list_store(rclone, told, look).files
    except StoreTrouble as trouble:
        if trouble.passing:
            raise
        return ()  # nothing was stored yet
    folders = {path.partition("/")[0] for path in files if "/" in path}
    marked = {folder for folder in folders if files.keys() & {"%s/%s" % (folder, mark) for mark in MARKS}}
    return tuple("/%s/**" % _literal(folder) for folder in sorted(folders - marked)) if marked else ()


def _literal(name: str) -> str:
    """Return a name as a pattern that means just it."""
    return "".join("\\" + sign if sign in "*?[]{}\\" else sign for sign in name)


def _locked(path: str, look: Look) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            look()
            time.sleep(_LOOK_SECONDS)
