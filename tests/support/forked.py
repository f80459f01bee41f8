"""Commands without the start of a Python: one process has imported what they need, and forks for each.

Each command is a process all the same, with streams, a folder, an environment and an exit code of its own. It is what a
command does most of the time in tests that start one, and half of the gate's command line took it. How a command starts
as a program is tried where :meth:`Fabric.start` and the terminals start it.

A controller that such a command starts is forked likewise, and shows the words and the environment of one that was
started as a program; so is one that a test's own process starts as a client. How a controller starts as a program is
tried where :func:`tests.support.controllers.controller` and commands that are programs start it.

:class:`ForkedPythons` forks likewise for lines of Python and modules that tests run as a job's code: that process has
imported much of the standard library, and nothing of fabric.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

PACKAGES: Final = (
    "workbench.cli",
    "workbench.controller",
    "workbench.services",
    "workbench.store",
    "workbench.manifest",
    "workbench.config",
    "workbench.documents",
    "workbench.terminal",
    "workbench.logs",
    "workbench.metrics",
    "workbench.data",
    "backends",
    "runners",
)
"""What is imported ahead; the rest, as the screens, is when a command asks for it."""
LEFT_OUT: Final = frozenset({"__main__", "conformance"})
USED_LATER: Final = (
    "encodings.ascii", "encodings.utf_8_sig", "paramiko", "pathspec.gitignore", "tomllib", "typer._click.decorators",
    "workbench.learner.boot.archive", "workbench.process_end",
)  # fmt: skip
"""What functions of these import."""
OF_PYTHON: Final = (
    "argparse",
    "base64",
    "concurrent.futures",
    "datetime",
    "decimal",
    "fcntl",
    "glob",
    "gzip",
    "hashlib",
    "hmac",
    "importlib.metadata",
    "importlib.resources",
    "inspect",
    "json",
    "logging",
    "mmap",
    "pickle",
    "platform",
    "queue",
    "runpy",
    "secrets",
    "shutil",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "traceback",
    "typing",
    "urllib.parse",
    "urllib.request",
    "uuid",
    "zipfile",
)
"""What the code of jobs is likely to import of the standard library."""
PYTHONS: Final = "pythons"
"""The word with which this file forks for Pythons."""
LOCALE: Final = ("LC_ALL", "LC_CTYPE", "LANG")
LIBRARY_PATH: Final = "LD_LIBRARY_PATH"
STAND_IN: Final = "libnvidia-ml.so.1"
STAND_IN_FOLDER: Final = "fabric-test-nvml-"
"""What the folder's name has in it that :func:`tests.stubs.nvml_library` makes."""
UTF_8: Final = "C.UTF-8"
"""What Python takes, and sets as ``LC_CTYPE``, where no locale is named."""
POSIX_SPAWN: Final = os.posix_spawn
"""The call itself: with it in its place a controller is a program again."""
CONTROLLER: Final = os.path.join("workbench", "controller", "__main__.py")  # noqa: PTH118 - it is the end of a word
_masking = threading.Lock()


def _umask() -> int:
    """Return this process's umask: it can be read only by being set, and threads have one in common."""
    with _masking:
        os.umask(mask := os.umask(0o077))
        return mask


MOST_BYTES: Final = 1 << 17
"""A request for a controller is shorter: it has words and an environment."""
_LENGTH: Final = struct.Struct("=I")
_ENDED: Final = struct.Struct("=i")


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is looked at only when a Python starts: variables of its own and of the loader, and the locale."""
    own = {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_"))}
    if stand_in(own):
        del own[LIBRARY_PATH]
    locale = next((environment[name] for name in LOCALE if environment.get(name)), UTF_8)
    return {**own, "LC_ALL": locale}


def stand_in(environment: Mapping[str, str]) -> str:
    """Return the stub of NVIDIA's library where the loader is shown nothing else.

    Who has loaded it by its path finds it by its name, as who has started with that variable does.
    """
    folder = environment.get(LIBRARY_PATH, "")
    file = Path(folder, STAND_IN)
    return str(file) if STAND_IN_FOLDER in folder and file.is_file() else ""


class Forks:
    """The process that forks, as long as this one lives; started when the first command is."""

    words: Sequence[str] = ()
    """What this file is started with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._started_with: dict[str, str] | None = None

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Say whether a command would find here what it finds as a program."""
        usual = self._started_with
        return read_at_start(environment) == (read_at_start(os.environ) if usual is None else usual)

    def run(
        self, argv: list[str], *, cwd: Path, env: Mapping[str, str], input: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as ``subprocess.run`` does with ``capture_output`` and ``text``."""
        with contextlib.ExitStack() as ours:
            theirs: list[int] = []
            pipes: list[int] = []
            given = -1
            try:
                if input is None:
                    theirs.append(os.open(os.devnull, os.O_RDONLY))
                else:
                    end, given = os.pipe()
                    theirs.append(end)
                for _ in range(3):  # stdout, stderr, and the line that says how it ended
                    kept, end = os.pipe()
                    pipes.append(kept)
                    ours.callback(os.close, kept)
                    theirs.append(end)
                mask = _umask()
                self.ask({"argv": argv, "cwd": str(cwd), "env": dict(env), "umask": mask}, theirs)
            finally:
                for end in theirs:
                    os.close(end)
                if given >= 0:
                    ours.callback(os.close, given)
            pid = _ENDED.unpack(_read(pipes[2], _ENDED.size))[0]
            try:
                out, err = _converse(
                    given, (input or "").encode(errors="surrogateescape"), pipes[:2], timeout
                )
                code = _ENDED.unpack(_read(pipes[2], _ENDED.size))[0]
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(argv, code, _text(out), _text(err))

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Have a command started: its three streams, and what gets its process's id and, at its end, its exit code."""
        body = json.dumps(request).encode()
        with self._lock:
            if self._line is None:
                self._line = self._start()
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            self._line.sendmsg([_LENGTH.pack(len(body))], [rights])
            self._line.sendall(body)

    def _start(self) -> socket.socket:
        line, theirs = socket.socketpair()
        with theirs:
            if self._started_with is None:
                self._started_with = read_at_start(os.environ)
            # OpenBLAS would start threads, which a process that is forked must not have. Nothing names the home of
            # the test that was the first to ask: with that it would be ended.
            environment = {"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1", **self._started_with}
            argv = [sys.executable, "-P", __file__, *self.words]
            self._server = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=subprocess.PIPE, env=environment, cwd="/"
            )
        atexit.register(self.end)
        return line

    def take_over_controllers(self, usual: Mapping[str, str]) -> None:
        """Have controllers that this process starts as a client forked there, too.

        Args:
            usual: the variables that tests have. Who is the first to ask may have others, as the fixtures of a module
                do, and all commands of the tests after it would be programs then.
        """
        self._started_with = read_at_start(usual)
        Controllers(lambda request, line: self.ask(request, [line]), self.can_run).take_over()

    def end(self) -> None:
        """End the process that forks."""
        if self._server and self._line:
            self._line.close()
            self._server.wait()
            assert self._server.stdout
            self._server.stdout.close()


class ForkedPythons(Forks):
    """Runs ``python -c CODE WORDS`` and ``python -m MODULE WORDS`` without the start of a Python, and without its end.

    What is left when the code is over is not freed: what is tried of that needs a program.
    """

    words = (PYTHONS,)

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Say whether such an environment leaves nothing to a start but the search for modules."""
        return {name for name in environment if name.startswith(("PYTHON", "LD_", *LOCALE))} <= {"PYTHONPATH"}


def _converse(given: int, data: bytes, pipes: list[int], timeout: float) -> tuple[bytes, bytes]:
    """Write what is given and read both streams to their ends; a command that says nothing for too long is late."""
    output = {end: bytearray() for end in pipes}
    with selectors.DefaultSelector() as ready:
        for end in pipes:
            ready.register(end, selectors.EVENT_READ)
        if given >= 0:
            os.set_blocking(given, False)
            ready.register(given, selectors.EVENT_WRITE)
        while ready.get_map():
            events = ready.select(timeout)
            if not events:
                raise subprocess.TimeoutExpired("fabric", timeout, *map(bytes, output.values()))
            for key, _ in events:
                if key.fd != given:
                    if part := os.read(key.fd, 65536):
                        output[key.fd] += part
                    else:
                        ready.unregister(key.fd)
                    continue
                with contextlib.suppress(BrokenPipeError):
                    data = data[os.write(given, data[:65536]) if data else 0 :]
                    if data:
                        continue
                ready.unregister(given)
                os.dup2(pipes[0], given)  # its reader sees the end now; the number is closed with the others
    return bytes(output[pipes[0]]), bytes(output[pipes[1]])


def _read(descriptor: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.read(descriptor, length - len(data))
        assert part, "the process that forks for commands has died"
        data += part
    return data


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


FORKS: Final = Forks()
PYTHON_FORKS: Final = ForkedPythons()


# The process that forks


def main() -> None:
    """Import, then fork for every command that is asked for on stdin, until that is closed."""
    be_asked: Callable[[dict[str, Any], list[int], socket.socket], NoReturn] = _be_command
    if sys.argv[1:] == [PYTHONS]:
        be_asked = _be_python
        for name in OF_PYTHON:
            importlib.import_module(name)
    else:
        _import_all()
    gc.collect()
    gc.freeze()
    _fill_holes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    running: dict[int, int] = {}
    asked, asks = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with socket.socket(fileno=os.dup(0)) as line, selectors.DefaultSelector() as ready:
        for each in (line, asked, read_end):
            ready.register(each, selectors.EVENT_READ)

        def fork(descriptor: int, become: Callable[[], NoReturn]) -> None:
            """Fork a process, which says on a descriptor which one it is and how it ended."""
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for each in (read_end, write_end, descriptor, *running.values()):
                    os.close(each)
                line.close()
                asked.close()
                ready.close()
                become()
            running[pid] = descriptor
            with contextlib.suppress(BrokenPipeError):
                os.write(descriptor, _ENDED.pack(pid))

        while True:
            for key, _ in ready.select():
                if key.fd == read_end:
                    os.read(read_end, 4096)
                    _tell_of_ended(running)
                elif key.fileobj is asked:
                    body, descriptors = _receive_with(asked, MOST_BYTES)
                    controller = json.loads(body)
                    fork(descriptors[0], lambda controller=controller: _be_controller(controller))  # type: ignore[misc]
                else:
                    received = _receive(line)
                    if received is None:
                        return
                    request, (*streams, reply) = received
                    if "files" in request:
                        fork(reply, lambda request=request: _be_controller(request))  # type: ignore[misc]
                        continue
                    fork(reply, lambda request=request, streams=streams: be_asked(request, streams, asks))  # type: ignore[misc]
                    for descriptor in streams:
                        os.close(descriptor)


def _import_all() -> None:
    import pkgutil

    sys.path.insert(0, str(Path(__file__).parents[2]))
    import fabric_workbench

    fabric_workbench._drop_foreign_folders()
    for name in USED_LATER:
        importlib.import_module(name)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if LEFT_OUT.isdisjoint(module.name.split(".")):
                _compile_values(importlib.import_module(module.name))
    from workbench.data.stores.rclone import find_rclone
    from workbench.errors import FabricError

    with contextlib.suppress(FabricError):
        find_rclone()  # its version is asked for once in a process


_EMPTY_BYTES: Final = sys.getsizeof(b"")
_LEAST_OBJECT: Final = 48
_POOL: Final = 1 << 14
"""Python's own heap, for objects up to half a kilobyte, consists of pools of this size, each for one size of them."""
_POOL_HEAD: Final = 48
"""What a pool begins with; then comes the first of its objects that is given away."""


class _HeapCounts(ctypes.Structure):
    """What ``mallinfo2`` returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")
    ] + [("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


def _fill_holes() -> None:
    """Take what is free between all that is there, so that what a fork makes lies on pages that are new.

    A page that a fork writes to and has in common with this process is copied: half of the pages of a command were,
    for the holes in them.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return
    libc.mallinfo2.restype = _HeapCounts
    for call in (libc.malloc, libc.sbrk):
        call.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    for size in range(_LEAST_OBJECT, 513, 16):
        while (id(_kept[-1]) if _kept else 0) % _POOL != _POOL_HEAD:
            _kept.append(bytes(size - _EMPTY_BYTES))
        _kept.append(None)
    end = libc.sbrk(0) - libc.mallinfo2().keepcost
    sizes = [1 << power for power in range(16, 10, -1)] + list(range(1040, 23, -16))
    for size in sizes:
        while (block := libc.malloc(size)) < end:
            pass
        libc.free(block)


def _compile_values(module: ModuleType) -> None:
    """Have the value classes of a module made: each is compiled when somebody looks at its fields."""
    for found in vars(module).values():
        if isinstance(found, type):
            dataclasses.is_dataclass(found)


def _receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    head, descriptors = _receive_with(line, _LENGTH.size)
    if not head:
        return None
    return json.loads(_read(line.fileno(), _LENGTH.unpack(head)[0])), descriptors


def _receive_with(line: socket.socket, length: int) -> tuple[bytes, list[int]]:
    """Read so many bytes, and the descriptors that came with them."""
    descriptors = array.array("i")
    data, extra, _, _ = line.recvmsg(length, socket.CMSG_SPACE(4 * descriptors.itemsize))
    for _, _, part in extra:
        descriptors.frombytes(part)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data, list(descriptors)


def _take_streams(streams: list[int]) -> None:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _be_python(request: dict[str, Any], streams: list[int], asks: socket.socket) -> NoReturn:
    _take_streams(streams)
    asks.close()
    kind, what, *words = request["argv"][1:]
    _become({**request, "argv": [kind, *words]})
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    folders = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = ["" if kind == "-c" else str(Path.cwd()), *filter(None, folders.split(os.pathsep))]
    main_module = sys.modules["__main__"] = ModuleType("__main__")
    code: object = 0
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("sitecustomize")
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), vars(main_module))
    except SystemExit as end:
        code = end.code
    except BaseException:
        code = 1
        sys.excepthook(*sys.exc_info())
    _end_python(code)


def _end_python(code: object) -> NoReturn:
    """End as Python does where nothing but files has to be put in order: to free all that there is takes longest."""
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _be_command(request: dict[str, Any], streams: list[int], asks: socket.socket) -> NoReturn:
    _take_streams(streams)
    _become(request)
    started_with = read_at_start(os.environ)
    Controllers(
        lambda asked, line: _send(asks, asked, line),
        lambda environment: read_at_start(environment) == started_with,
    ).take_over()
    from fabric_workbench import command

    command()
    sys.exit()


def _become(request: dict[str, Any]) -> None:
    """Be a process that was started with these words, folder and environment; its streams are there."""
    # Those from before know what a descriptor was then: whether it can be sought, or is a terminal.
    sys.stdout, sys.stderr = (
        open(number, "w", buffering, stream.encoding, stream.errors, closefd=False)  # noqa: SIM115
        for number, buffering, stream in ((1, -1, sys.stdout), (2, 1, sys.stderr))
    )
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if not any(os.environ.get(name) for name in LOCALE):
        os.environ["LC_CTYPE"] = UTF_8
    time.tzset()
    if library := stand_in(os.environ):
        _kept.append(ctypes.CDLL(library))
    sys.argv[:] = request["argv"]
    sys.orig_argv[:] = [sys.executable, *request["argv"]]


class Controllers:
    """The controllers that a process starts as a client: they are forked, and seem to be its children.

    Args:
        ask: has a controller forked, and gives it a descriptor for its pid and, at its end, its exit code.
        can_run: says whether one of such an environment can be forked.
    """

    def __init__(
        self, ask: Callable[[dict[str, Any], int], None], can_run: Callable[[Mapping[str, str]], bool]
    ) -> None:
        self._ask = ask
        self._spawn = POSIX_SPAWN
        self._wait = os.waitpid
        self._lock = threading.Lock()
        self._lines: dict[int, int] = {}
        """What says how each ended, by its pid."""
        self._can_run = can_run
        self._python = sys.executable

    def take_over(self) -> None:
        """Take the place of the calls with which a client starts a process and waits for it."""
        os.posix_spawn = self.spawn  # type: ignore[assignment]  # it takes what a command calls it with
        os.waitpid = self.wait

    def spawn(
        self, path: str, argv: list[str], env: Mapping[str, str], **options: Any
    ) -> int:  # the options of posix_spawn
        """Start a process as ``os.posix_spawn`` does."""
        is_controller = path == self._python and len(argv) > 2 and argv[2].endswith(CONTROLLER)
        if not (is_controller and self._can_run(env)):
            return self._spawn(path, argv, env, **options)
        mask = _umask()
        request = {"argv": list(argv), "env": dict(env), "cwd": str(Path.cwd()), "umask": mask}
        files = [action[1:] for action in options["file_actions"]]
        line, theirs = os.pipe()
        try:
            self._ask({**request, "files": files}, theirs)
        finally:
            os.close(theirs)
        pid: int = _ENDED.unpack(_read(line, _ENDED.size))[0]
        self._lines[pid] = line
        return pid

    def wait(self, pid: int, options: int) -> tuple[int, int]:
        """Wait for a process as ``os.waitpid`` does; of two threads that wait for one, one finds that it is gone."""
        with self._lock:
            line = self._lines.get(pid)
            if line is not None and _is_own_child(pid):
                # Nobody waited for the controller of this number, which has ended since: numbers are used again.
                os.close(self._lines.pop(pid))
                line = None
            if line is not None:
                os.set_blocking(line, not options & os.WNOHANG)
                try:
                    code = _ENDED.unpack(_read(line, _ENDED.size))[0]
                except BlockingIOError:
                    return 0, 0
                os.close(self._lines.pop(pid))
                return pid, code << 8 if code >= 0 else -code
        return self._wait(pid, options)


def _is_own_child(pid: int) -> bool:
    """Say whether a process that nobody has waited for is this process's own child."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _be_controller(request: dict[str, Any]) -> NoReturn:
    os.setsid()
    for number, *action in request["files"]:
        _redirect(number, *action)
    os.closerange(3, 1024)
    argv, environment = request["argv"], request["env"]
    if not _show(argv, environment):
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)
    _become({**request, "argv": argv[2:]})
    gc.disable()
    from workbench.controller.main import main as control
    from workbench.process_end import end_process

    end_process(control(argv[3:]))
    sys.exit()


def _send(asks: socket.socket, request: dict[str, Any], line: int) -> None:
    """Ask the process that forks, from a command that it has forked, for a controller."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [line]))
    asks.sendmsg([json.dumps(request).encode()], [rights])


def _redirect(number: int, *action: Any) -> None:
    """Do one of the file actions of ``os.posix_spawn``: open a file as a descriptor, or make it another one's twin."""
    if len(action) == 1:
        os.dup2(number, action[0])
        return
    path, flags, mode = action
    opened = os.open(path, flags, mode)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


_PR_SET_MM: Final = 35
_PR_SET_MM_MAP: Final = 14
_kept: list[Any] = []


def _show(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Have ``/proc`` show these words and variables of this process; return False where the kernel does not let us."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    texts = ctypes.create_string_buffer(words + variables)
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code, code_end, stack = stat[23:26]
    data, data_end, heap = stat[42:45]
    begin = ctypes.addressof(texts)
    middle, end = begin + len(words), begin + len(words) + len(variables)
    places = (code, code_end, data, data_end, heap, libc.sbrk(0), stack, begin, middle, middle, end)
    document = struct.pack("=12QII", *map(int, places), 0, 0, 0xFFFFFFFF)
    given = ctypes.create_string_buffer(document, len(document))
    _kept.append(texts)  # it is read for as long as the process lives
    size = ctypes.c_ulong(len(document))
    return not libc.prctl(_PR_SET_MM, ctypes.c_ulong(_PR_SET_MM_MAP), given, size, ctypes.c_ulong(0))


def _tell_of_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        descriptor = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, _ENDED.pack(os.waitstatus_to_exitcode(status)))
        os.close(descriptor)


if __name__ == "__main__":
    main()
