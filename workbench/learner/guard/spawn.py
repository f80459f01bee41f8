"""Starts the learner's command in two steps: forked and held, then let go once its start is written down.

So a command that ran is always one whose start is recorded, at whatever instant its guard is killed: a held
child whose guard dies reads the end of its pipe and leaves without having executed anything.
"""

from __future__ import annotations

import contextlib
import os
import signal

from workbench.learner.platform import system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.journal.launch_document import LaunchDocument

ARGUMENT_BYTES = 100_000
"""A longer script goes through a file: Linux takes at most 128 KiB in one argument."""

_CAUGHT = ("SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGCHLD")
"""What Python, or we, ignore or handle: nothing of ours may answer them in the child."""


class HeldChild:
    """A forked child that waits for :meth:`release` before it executes the command."""

    __slots__ = ("_failed", "go", "pid", "ticks")

    def __init__(self, pid: int, go: int, failed: int) -> None:
        self.pid = pid
        self.ticks = system.start_ticks(pid)
        self.go = go
        self._failed = failed

    def release(self) -> None:
        """Let the child execute the command."""
        with contextlib.suppress(OSError):  # it has died already, and will be reaped like any other
            os.write(self.go, b"g")
        os.close(self.go)

    def failure(self) -> str:
        """Return why it could not be executed, once it has ended; empty when it was."""
        try:
            return os.read(self._failed, 1000).decode("utf-8", "replace")
        except OSError:
            return ""
        finally:
            os.close(self._failed)


def hold(argv: list[str], launch: LaunchDocument, environment: dict[str, str], output: int) -> HeldChild:
    """Fork a child that will execute a command in a session of its own, with one pipe as stdout and stderr.

    Raises:
        OSError: there is no room for another process.
    """
    held, go = os.pipe()
    failed, fail = os.pipe()
    os.set_blocking(failed, False)
    try:
        pid = os.fork()
    except OSError:
        for descriptor in (held, go, failed, fail):
            os.close(descriptor)
        raise
    if pid == 0:
        os.close(go)  # else it would hold itself
        _exec_in_child(argv, launch, environment, output, held, fail)
    os.close(held)
    os.close(fail)
    return HeldChild(pid, go, failed)


def shell_argv(
    launch: LaunchDocument, script: str, folder: str, name: str, path: str, held_folder: str
) -> list[str]:
    """Return how a script is run: by the launch's shell where it is there, else by ``sh``.

    A script that is too long for an argument is put into the folder under that name, as the guard reaches it.
    """
    shell = launch.shell if os.sep in launch.shell or _on_path(launch.shell, path) else "sh"
    if len(os.fsencode(script)) <= ARGUMENT_BYTES:
        return [shell, "-c", script]
    file = os.path.join(held_folder, name)
    try:
        with open(file, "wb") as target:
            target.write(os.fsencode(script) + b"\n")
    except OSError:
        with contextlib.suppress(OSError):  # half of it would take the room of journals and state
            os.unlink(file)
        raise
    return [shell, os.path.join(folder, name)]


def _on_path(name: str, path: str) -> bool:
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in path.split(os.pathsep) if folder)


def _exec_in_child(
    argv: list[str], launch: LaunchDocument, environment: dict[str, str], output: int, held: int, fail: int
) -> None:
    failure_text = "the command could not be started"
    try:
        signal.set_wakeup_fd(-1)
        for name in _CAUGHT:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        # What whoever started us ignores stays ignored through every exec (`nohup`, `&` of a script, a daemon).
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        system.set_affinity(launch.cpus)
        if launch.umask is not None:
            os.umask(launch.umask)
        failure_text = "the working folder cannot be entered"
        os.chdir(launch.cwd)
        if os.read(held, 1) != b"g":
            os._exit(1)
        failure_text = "the shell cannot be executed"
        os.execvpe(argv[0], argv, environment)
    except BaseException as error:  # nothing of the guard's may run on in the child
        reason = str(getattr(error, "strerror", None) or error or type(error).__name__)
        file = getattr(error, "filename", None)
        os.write(fail, ("%s: %s%s" % (failure_text, "%s: " % file if file else "", reason)).encode()[:1000])
    finally:
        os._exit(126)
