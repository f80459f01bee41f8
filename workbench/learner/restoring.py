"""Brings back what attempts before have stored, so that a job goes on anywhere from where it was."""

from __future__ import annotations

import fcntl
import os
import time

from workbench.learner.store_sources import Stored
from workbench.learner.store_trouble import explain, is_missing

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.rclone import Look, Rclone
    from workbench.learner.stores import Stores
    from workbench.learner.telling import Teller

TRANSFERS = 8
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
            _bring(stores.checkpoints, stores.checkpoint_dir, (), stores, rclone, teller, look)
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
    arguments += ["--retries", "1", "--low-level-retries", "5"]
    for pattern in but:
        arguments += ["--exclude", pattern]
    done = rclone.run(arguments, look=look, on_statistics=teller.take)
    if done.code and not is_missing(done.messages):  # nothing was stored yet
        raise explain(done.messages, store=results["id"], address=results["address"])


def _locked(path: str, look: Look) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            look()
            time.sleep(_LOOK_SECONDS)
