"""The agent's commands: ``guard``, ``store``, ``contain`` of a learner's folder, ``host``, ``waiter``, ``pod``..."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.journal.state import HeldFolder
    from workbench.learner.stores.mount import Mount

USAGE = (
    "usage: agent guard|store DIR | contain DIR ACT | host | waiter HOME_DIR HOME | fork-server NUMBER SECONDS"
    " | pod ROLE | version\n"
)
EXIT_USAGE = 64
EXIT_NO_INPUT = 66

_GOING_TRIES = 20
_GOING_PAUSE_SECONDS = 0.01


def main(arguments: list[str]) -> int:
    """Run one of the agent's commands and return its exit code."""
    if arguments == ["version"]:
        from workbench.learner.platform.version import VERSION

        sys.stdout.write(VERSION + "\n")
        return 0
    if arguments == ["host"]:
        from workbench.learner.host.server import serve
        from workbench.learner.platform.login_session import leave_session

        leave_session()
        return serve(sys.stdin.buffer, sys.stdout.buffer)
    if len(arguments) == 2 and arguments[0] == "guard":
        return guard(os.path.abspath(arguments[1]))
    if len(arguments) == 2 and arguments[0] == "store":
        from workbench.learner.stores.upload_process import retry_upload

        return retry_upload(os.path.abspath(arguments[1]))
    if len(arguments) == 3 and arguments[0] == "contain":
        from workbench.learner.guard.container_command import main as contain

        # Nothing is left to be flushed, and the learner's end waits for this one's.
        os._exit(contain(*arguments[1:]))
    if len(arguments) == 3 and arguments[0] == "waiter":
        from workbench.learner.waiter.waiter import main as wait

        return wait(*arguments[1:])
    if len(arguments) == 3 and arguments[0] == "fork-server":
        # Imported once, for all agents that are forked: what most learners need.
        from workbench.learner.collectors import load
        from workbench.learner.guard import guard as _guard  # noqa: F401
        from workbench.learner.host.fork_server import serve as fork
        from workbench.learner.platform import system
        from workbench.learner.queue import gpu_use as _gpu_use  # noqa: F401
        from workbench.learner.scribe import usage  # noqa: F401
        from workbench.learner.stores import config as _config  # noqa: F401

        load("auto", {})
        system.libc()
        return fork(int(arguments[1]), float(arguments[2]), guard)
    if arguments[:1] == ["pod"]:
        from workbench.learner.pod.main import main as pod

        return pod(arguments[1:])
    sys.stderr.write(USAGE)
    return EXIT_USAGE


def guard(folder: str) -> int:
    """Run the learner of a folder from its start to its end, unless another agent does or did.

    It never starts a command twice: where an agent lives, or an end is recorded, there is nothing to do;
    where an agent was killed after the start, the learner's processes are ended and its end is recorded.
    """
    from workbench.learner.journal import launch_document, state
    from workbench.learner.platform import system

    system.keep_descriptors_from_children()
    if "FABRIC_NOFILE" in os.environ:
        from workbench.learner.platform.descriptors import restore_limit

        restore_limit()
    held_path = folder
    try:
        held = state.HeldFolder(folder)
        held_path = held.held_path
        is_inherited = held.take_inherited_lock()
        if not is_inherited and not held.take_lock():
            return 0
        found = state.read_patiently(held_path)
        # Who wrote it hands its lock to us, or it stays: its mount came back just now, and it takes its lock again.
        if not is_inherited and found.get("phase") != "exited" and _stays(found):
            return 0
        was_started = (
            os.path.exists(os.path.join(held_path, "state.json")) and found.get("phase") != "starting"
        )
        if found.get("phase") == "exited":
            return 0
        held.keep(found if was_started else None)
        launch = launch_document.read(folder)
    except (OSError, ValueError) as error:
        sys.stderr.write("%s cannot be started: %s\n" % (folder, str(error).replace(held_path, folder)))
        return EXIT_NO_INPUT
    try:
        secrets = launch.secret_values()
    except (OSError, ValueError) as error:
        if not was_started:
            state.refuse(held_path, launch, "its secrets cannot be read: %s" % error)
            return EXIT_NO_INPUT
        secrets = {}  # dropped since: what is left to be done needs none
    os.chdir("/")
    if was_started:
        _take_over(held, launch, secrets)
        return 0
    variables: dict[str, str] | None = {}
    mounts: list[Mount] = []
    release_data: Callable[[], None] | None = None
    if launch.stores:
        from workbench.learner.stores.download import DataDownload

        fetching = DataDownload(held, launch, secrets)  # it holds what it brings
        variables, mounts, release_data = fetching.run(), fetching.mounts, fetching.release
    if variables is not None:
        from workbench.learner.guard.guard import Guard

        launch.env.update(variables)
        Guard(held, launch, secrets, mounts, release_data=release_data).run()
    return 0


def _stays(found: dict[str, Any]) -> bool:
    """Say whether the agent that wrote a state runs though its lock is free; a killed one is gone in a moment."""
    from workbench.learner.journal import state

    for _ in range(_GOING_TRIES):
        if found.get("pid") == os.getpid() or not state.is_kept(found):
            return False
        time.sleep(_GOING_PAUSE_SECONDS)
    return True


def _take_over(folder: HeldFolder, launch: LaunchDocument, secrets: dict[str, str]) -> None:
    """End a learner whose agent was killed, keep what its pipe still holds, and record that."""
    from workbench.learner.scribe.masking import Mask, texts_to_mask
    from workbench.learner.scribe.orphan import rescued_pipes
    from workbench.learner.scribe.process import open_channels
    from workbench.learner.scribe.scribe import RETRY_SECONDS, Scribe

    launch.follow_move(folder.path)
    pipes = rescued_pipes(folder, launch)
    while True:
        try:
            mask = Mask(texts_to_mask(secrets, launch.env))
            channels = open_channels(folder, launch, mask, pipes)
            break
        except OSError:
            # On a full disk whoever looks at the learner sees that nobody has recorded its end yet.
            folder.keep_lock()
            if folder.is_removed():
                return
            time.sleep(RETRY_SECONDS)
    Scribe(folder, launch, channels).run()
