"""A pytest plugin that gives xdist workers which are forked from one process that has collected the tests.

Each worker of pytest-xdist imports all modules and makes all tests, of which it runs its share: with thousands of tests
that takes as long as hundreds of them, once for each worker. Here one process does it, this file as a program, and a
worker is a fork of it; all that xdist's controller and its workers say to each other stays as it is. Where that process
cannot collect, as with options that are wrong, workers are started as usual, and say why.

What a module of tests draws by chance as it is imported all workers have in common.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

_PID: Final = struct.Struct("=i")
_READY: Final = b"1"
_MOST_BYTES: Final = 4096
"""A request for a worker is shorter."""


# The controller's side


class CollectedTests:
    """The process that has collected the tests, for the controller of a run."""

    def __init__(self, request: dict[str, Any]) -> None:
        from execnet import gateway_io

        self._usual = gateway_io.create_io
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__], stdin=theirs.fileno(), stdout=subprocess.DEVNULL
            )
        self._line.sendall(json.dumps(request).encode() + b"\n")
        self._is_ready: bool | None = None
        gateway_io.create_io = self._create_io

    def _create_io(self, spec: Any, execmodel: Any) -> Any:
        """Return the streams of a new worker, as execnet's own function does for a program."""
        if spec.popen and not (spec.python or spec.dont_write_bytecode):
            if self._is_ready is None:
                self._is_ready = self._line.recv(1) == _READY
            if self._is_ready:
                return self._fork(spec.id, execmodel)
        return self._usual(spec, execmodel)

    def _fork(self, name: str, execmodel: Any) -> Any:
        from execnet.gateway_base import Popen2IO

        class WorkerStreams(Popen2IO):
            """Of a process that is another one's child."""

            def __init__(self, to: int, of: int, pid: int) -> None:
                super().__init__(os.fdopen(to, "wb"), os.fdopen(of, "rb"), execmodel)
                self._process = os.pidfd_open(pid)

            def wait(self) -> None:
                select.select([self._process], [], [])

            def kill(self) -> None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)

        its_input, to = os.pipe()
        of, its_output = os.pipe()
        try:
            socket.send_fds(self._line, [name.encode()], [its_input, its_output])
        finally:
            os.close(its_input)
            os.close(its_output)
        return WorkerStreams(to, of, _PID.unpack(self._line.recv(_PID.size, socket.MSG_WAITALL))[0])

    def pytest_unconfigure(self) -> None:
        """End that process; its workers have ended."""
        from execnet import gateway_io

        gateway_io.create_io = self._usual
        self._line.close()
        self._process.wait()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Have the tests collected before there is a worker."""
    from xdist.plugin import _sys_path  # type: ignore[import-untyped]

    from tests.gate.order import KEY
    from tests.gate.record import read_seconds

    request = {
        "args": [str(arg) for arg in config.invocation_params.args],
        "folders": _sys_path,
        # What a worker knows as it collects; it is given its own when it begins.
        "workerinput": {
            "workerid": "gw",
            "workercount": len(specs),
            "testrunuid": "collecting",
            "mainargv": sys.argv,
            KEY: read_seconds(),
        },
    }
    config.pluginmanager.register(CollectedTests(request), "collected-tests")


# The process that has collected the tests


class WorkerForks:
    """The plugin of that process: once all is collected it forks, and each fork goes on as a worker."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._reports: list[pytest.CollectReport] = []
        self._warnings: list[dict[str, Any]] = []
        self._folders: list[str] = []
        self._is_worker = False
        self._has_worker = threading.Event()
        self._is_over = threading.Event()
        self._gateway: threading.Thread | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what workers have to report of collecting."""
        if not (self._is_worker or report.passed):
            self._reports.append(report)

    def pytest_warning_recorded(
        self, warning_message: object, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Keep what workers have to report of collecting."""
        if not self._is_worker:
            about = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
            self._warnings.append(about)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> object:
        """Fork a worker for each request; go on as that with what xdist's own module for workers has made of it."""
        from workbench.learner.boot.archive import packed

        packed()  # once for all: each home of a test has an archive of its own
        self._line.sendall(_READY)
        interrupted = signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # ctrl-c is the controller's, which then ends us
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a worker here
        while True:
            name, streams, _, _ = socket.recv_fds(self._line, _MOST_BYTES, 2)
            if not name:
                os._exit(0)
            if (pid := os.fork()) == 0:
                break
            for stream in streams:
                os.close(stream)
            self._line.sendall(_PID.pack(pid))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, interrupted)
        self._line.close()
        self._is_worker = True
        config = session.config
        self._gateway = self._serve(name.decode(), streams, config)
        self._has_worker.wait()
        worker: Any = next(
            plugin
            for plugin in config.pluginmanager.get_plugins()
            if type(plugin).__name__ == "WorkerInteractor"
        )
        temporary: Any = getattr(config, "_tmp_path_factory", None)
        if temporary and config.option.basetemp:
            temporary._given_basetemp = Path(config.option.basetemp)
        worker.pytest_sessionstart(session)
        worker.pytest_collection()
        for about in self._warnings:
            worker.pytest_warning_recorded(**about)
        for report in self._reports:
            worker.pytest_collectreport(report)
        worker.pytest_collection_finish(session)
        return worker.pytest_runtestloop(session)

    def _serve(self, name: str, streams: list[int], config: pytest.Config) -> threading.Thread:
        """Do in a thread what the main thread of a worker does that is a program: have it begin, and wait."""
        from _pytest import config as of_pytest
        from execnet.gateway_base import get_execmodel, init_popen_io, serve

        # What is captured goes into a file that all forks would write to.
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        while os.read(0, 1) != b"\n":
            pass  # what a program would be told to execute, which is this
        os.write(1, b"1")
        ends: Any = init_popen_io(get_execmodel("main_thread_only"))
        capture.start_global_capturing()
        capture.suspend_global_capture()
        self._folders = list(sys.path)

        def collected(*_: object) -> pytest.Config:
            return config

        of_pytest._prepareconfig = collected  # type: ignore[assignment]  # a worker calls it with what was given here

        def work() -> None:
            serve(ends, id=f"{name}-worker")

        thread = threading.Thread(target=work, name="gateway", daemon=True)
        thread.start()
        return thread

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self) -> int | None:
        """Let the main thread run the tests when xdist's module for workers asks for that, and wait until it has."""
        if not self._is_worker:
            return None
        sys.path[:] = self._folders
        self._has_worker.set()
        self._is_over.wait()
        return 0

    def end(self) -> None:
        """Let that module end, and then what it talks to the controller with."""
        self._is_over.set()
        if self._gateway:
            self._gateway.join()


def main() -> None:
    """Collect, then be the process that forks, or one of the forks."""
    line = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    request = b""
    while not request.endswith(b"\n"):
        request += line.recv(65536)
    asked = json.loads(request)
    sys.path[:] = asked["folders"]
    its = asked["workerinput"]
    os.environ["PYTEST_XDIST_TESTRUNUID"] = its["testrunuid"]
    os.environ["PYTEST_XDIST_WORKER"] = its["workerid"]
    os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(its["workercount"])

    from _pytest.config import _prepareconfig

    config: Any = _prepareconfig(asked["args"], None)
    from xdist.remote import setup_config  # type: ignore[import-untyped]  # pytest rewrites plugins as it loads them

    setup_config(config, None)
    config.workerinput, config.workeroutput = its, {}
    forks = WorkerForks(line)
    config.pluginmanager.register(forks)
    config.hook.pytest_cmdline_main(config=config)
    forks.end()

    from workbench.process_end import end_process

    sys.stderr.flush()
    end_process(0)


if __name__ == "__main__":
    main()
