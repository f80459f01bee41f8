"""The operations of a host, by name: one table that every host calls, directly here or over a pipe.

Names, arguments and answers of operations are JSON, so that an operation is the same over every host.
What carries bytes (run, put, read, connect) is not among them: those are functions of the other modules
this one.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping

from workbench.learner.host import journals, learners, machine
from workbench.learner.host.cpu_affinity import CpuChooser
from workbench.learner.host.machine import survey
from workbench.learner.host.subscribers import Subscribers
from workbench.learner.host.virtualenv import find_conda
from workbench.learner.journal.state import ask_to_stop
from workbench.learner.platform import files as host_files
from workbench.learner.platform import leases, run
from workbench.learner.platform.errors import Failure, of_os_error
from workbench.learner.platform.watch import WatcherPool

Operation = Callable[..., Any]  # its arguments and its answer are JSON

_unpacking = threading.Lock()  # the agent's own unpacking is for one thread at a time


class HostOperations:
    """The table of operations of this host, and the state that they keep between calls."""

    def __init__(self) -> None:
        self.watches = WatcherPool()
        self.followers = Subscribers(journals.JournalFollower)
        self._observers = Subscribers(learners.LearnerObserver)
        self._cpus = CpuChooser()
        self._operations: Dict[str, Operation] = {
            "identity": machine.identity,
            "survey": survey,
            "folder": machine.folder,
            "secret_folder": machine.secret_folder,
            "bindable": machine.bindable,
            "make_folders": host_files.make_folders,
            "touch": host_files.touch,
            "make_pipes": host_files.make_pipes,
            "let_others_in": host_files.open_to_all,
            "let_others_reach": _open_path_to_all,
            "is_foreign": host_files.is_foreign,
            "remove": host_files.remove,
            "existing": host_files.existing,
            "write_files": _write_files,
            "runnable": host_files.runnable,
            "find_conda": find_conda,
            "unpack": _unpack,
            "learner": learners.learner,
            "read_object": learners.read_object,
            "ask_to_stop": ask_to_stop,
            "observe": self._observe,
            "interrupt": self._observers.interrupt,
            "forget": self._observers.forget,
            "interrupt_follow": self.followers.interrupt,
            "forget_follow": self.followers.forget,
            "list_tree": _list_tree,
            "locate": _locate,
            "children": host_files.children,
            "choose_cpus": self._cpus.choose,
            "watch": self.watches.wait,
            "is_free": lambda path: not leases.is_held(path),
            "markers": learners.markers,
            "end_marked": _end_marked,
            "kill_agents": run.kill_agents,
            "unpack_agent": _unpack_agent,
            "inventory": _inventory,
            "prospects": _prospects,
            "data_copies": _data_copies,
            "drop_data_copies": _drop_data_copies,
        }

    def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do an operation.

        Raises:
            Failure: it failed, or this agent does not know it (the client is newer).
        """
        found = self._operations.get(operation)
        if found is None:
            raise Failure("failed", f"The agent on this host does not know {operation!r}: it is older.")
        return guarded(found, **arguments)

    def _observe(self, asker: str, known: Mapping[str, str], timeout_seconds: float) -> Dict[str, Any]:
        run.reap()
        return self._observers.of(asker).observe(known, timeout_seconds)

    def close(self) -> None:
        """Give everything back; calls that wait return."""
        self.watches.close()
        self.followers.close()
        self._observers.close()


def guarded(function: Operation, *arguments: Any, **named: Any) -> Any:
    """Call a function; what the operating system refuses becomes a :class:`Failure`."""
    try:
        return function(*arguments, **named)
    except OSError as error:
        raise of_os_error(error) from error


def _write_files(files: Mapping[str, str], mode: int = 0o600) -> None:
    from workbench.learner.platform.files import write_files

    write_files(files, mode)


def _unpack(archive: str, folder: str) -> bool:
    from workbench.learner.host.unpack import unpack

    return unpack(archive, folder)


def _list_tree(folder: str, within: str = "") -> Dict[str, List[Any]]:
    from workbench.learner.host.trees import list_tree

    return list_tree(folder, within)


def _locate(folder: str, path: str, within: str = "") -> List[Any]:
    from workbench.learner.host.trees import locate

    return locate(folder, path, within)


def _open_path_to_all(path: str, within: str) -> None:
    from workbench.learner.host.trees import open_path_to_all

    open_path_to_all(path, within)


def _end_marked(marker: str, grace_seconds: float) -> List[int]:
    from workbench.learner.platform.processes import end

    return end(marker, grace_seconds)


def _unpack_agent(archive: str) -> str:
    from workbench.learner.boot.bootstrap import unpack

    with _unpacking:
        return unpack(archive)


def _inventory(leases_folder: str = "") -> Dict[str, Any]:
    from workbench.learner.host.machine import inventory

    return inventory(leases_folder)


def _prospects(engine: str = "") -> Dict[str, Any]:
    from workbench.learner.host.probe import prospects

    return prospects(engine)


def _data_copies(cache: str) -> List[Dict[str, Any]]:
    from workbench.learner.stores.cache import entries

    return entries(cache)


def _drop_data_copies(cache: str, keep_bytes: int) -> List[str]:
    from workbench.learner.stores.cache import evict

    return evict(cache, until=lambda used: used <= keep_bytes)
