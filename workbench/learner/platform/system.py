"""The one seam for what only Linux can do: splice, the subreaper, affinity, boot ids, a clock without jumps.

Elsewhere the same names do the next best thing, and :mod:`workbench.learner.platform.processes` looks at ``ps``.
"""

from __future__ import annotations

import errno
import os
import pwd
import sys
import time

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

LINUX = sys.platform.startswith("linux")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) or getattr(time, "CLOCK_MONOTONIC", None)
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_F_SETPIPE_SZ = 1031
_F_GETPIPE_SZ = 1032
_FIONREAD = 0x541B if LINUX else 0x4004667F
_library = None

MOUNT_ENDED = frozenset(
    (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ESHUTDOWN)
)
"""What calls meet on a mount that has ended."""

MOUNT_GONE = MOUNT_ENDED | {errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH}
"""The same, and what they meet while a server does not answer: nobody knows what lies there."""

_AWAY = (b"fuse", b"virtiofs", b"nfs", b"cifs", b"smb", b"9p", b"ceph")
"""How the names of file systems begin whose files are somewhere else."""

_NO_HARD_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EMLINK)
"""What a file system without hard links answers: FUSE EPERM, SMB EOPNOTSUPP."""


def now_us() -> int:
    """Return the time in microseconds since 1970, UTC. It may jump: never for order or limits."""
    return time.time_ns() // 1000


def elapsed_seconds() -> float:
    """Return seconds on the clock that counts sleep and cannot jump."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def boot_id() -> str:
    """Return what names this boot of the machine, or an empty text where nothing does."""
    if LINUX:
        return read_text("/proc/sys/kernel/random/boot_id").strip()
    return output_of(["sysctl", "-n", "kern.bootsessionuuid"]).strip()


def start_ticks(pid: int) -> int:
    """Return when a process was started, in ticks since boot; 0 when it is dead or there is no such process.

    A pid means nothing without it. Elsewhere than on Linux these are seconds since 1970.
    """
    if LINUX:
        fields = read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
        return int(fields[19]) if len(fields) > 19 and not is_dead(fields[0], fields[17]) else 0
    return seconds_of_date(output_of(["ps", "-o", "lstart=", "-p", str(pid)]))


def state_letter(pid: int) -> str:
    """Return the letter of a process's state: ``T``, it is stopped; ``D``, it waits for a disk. Empty where none is."""
    if LINUX:
        return read_text("/proc/%d/stat" % pid).rpartition(")")[2].strip()[:1]
    letter = output_of(["ps", "-o", "stat=", "-p", str(pid)]).strip()[:1]
    return "D" if letter == "U" else letter


def is_dead(letter: str, threads: str) -> bool:
    """Say whether a process is dead by two fields of its ``stat``, though its parent has not buried it.

    One whose first thread has ended looks like a zombie while its other threads run on.
    """
    return letter == "X" or (letter == "Z" and int(threads) <= 1)


def seconds_of_date(text: str) -> int:
    """Return seconds since 1970 of a date as ``ps`` writes it; 0 when it is none."""
    try:
        return int(time.mktime(time.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y")))
    except ValueError:
        return 0


def become_subreaper() -> bool:
    """Become the process that orphans of our tree are given to; False where that cannot be had."""
    if not LINUX:
        return False
    library = libc()
    return library is not None and library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Be asked to end (SIGTERM) when the process that made us ends; nothing where that cannot be had."""
    library = libc() if LINUX else None
    if library is not None:
        library.prctl(_PR_SET_PDEATHSIG, 15, 0, 0, 0)


def hide_memory() -> bool:
    """Let no other process of the user read this one's memory, and no core of it be written; say whether that worked.

    What is executed later is as readable as ever.
    """
    library = libc() if LINUX else None
    return library is not None and library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


def set_affinity(cpus: Iterable[int]) -> None:
    """Let this process run on these CPUs only, as far as the machine has them and lets us choose."""
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = set(cpus) & os.sched_getaffinity(0)
    if allowed:
        os.sched_setaffinity(0, allowed)


def keep_descriptors_from_children() -> None:
    """Close on exec every descriptor that we were handed, so that locks and leases end with the agent."""
    try:
        names = os.listdir("/proc/self/fd" if LINUX else "/dev/fd")
    except OSError:
        names = []
    for name in names:
        number = int(name)
        if number > 2:
            try:
                os.set_inheritable(number, False)
            except OSError:
                continue  # the descriptor of the listing itself


def make_pipe(capacity_bytes: int) -> tuple[int, int]:
    """Make a pipe as large as the system lets us, up to a size; its read end does not block."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    return read_end, enlarged(write_end, capacity_bytes)


def enlarged(descriptor: int, capacity_bytes: int = 1 << 20) -> int:
    """Make the pipe of a descriptor as large as the system lets us, up to a size; return the descriptor."""
    import fcntl

    try:
        if LINUX:
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, capacity_bytes)
    except OSError:
        pass  # the user has many pipes: it stays at 64 KiB
    return descriptor


def pipe_capacity(descriptor: int) -> int:
    """Return how many bytes a pipe holds."""
    import fcntl

    try:
        return fcntl.fcntl(descriptor, _F_GETPIPE_SZ) if LINUX else 65536
    except OSError:
        return 65536


def unread_bytes(descriptor: int) -> int:
    """Return how many bytes wait in a pipe."""
    import fcntl

    answer = fcntl.ioctl(descriptor, _FIONREAD, b"\0\0\0\0")
    return int.from_bytes(answer, sys.byteorder)


def reports_changes(path: str) -> bool:
    """Say whether the kernel reports every change below a path.

    On FUSE it forgets files that it has looked up, and what watched them with them; and a mount that has ended reports
    nothing.
    """
    try:
        return not _filesystem_type(path).startswith((b"fuse", b"virtiofs"))
    except OSError as error:
        return error.errno not in MOUNT_GONE


def may_lose_writes(path: str) -> bool:
    """Say whether a file system may lose the last of what was written to it when its mount ends: a disk's does not."""
    try:
        return _filesystem_type(path).startswith(_AWAY)
    except OSError:
        return True


def loses_moved_folders(path: str) -> bool:
    """Say whether files cannot be read once a folder above them has another name: on rclone's mount, where uploaded.

    Version 1.75 goes on looking for them where they were, for as long as the mount lasts.
    """
    try:
        return _filesystem_type(path) == b"fuse.rclone"
    except OSError:
        return False


def _filesystem_type(path: str) -> bytes:
    device = os.stat(path).st_dev
    if not LINUX or os.major(device):  # disks have a number of their own
        return b""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    for line in read_bytes("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(b" - ")
        if before.split(b" ", 3)[2:3] == [number]:
            return after.split(b" ", 1)[0]
    return b""


def held_path(descriptor: int, path: str) -> str:
    """Return a path that leads to an open folder whatever lies at the folder's own path by now.

    It is this process's own, and its forks', and ends with a dot: it is no link. Where the system has no such paths it
    is the folder's.
    """
    return "/proc/self/fd/%d/." % descriptor if os.path.isdir("/proc/self/fd") else path


def is_mounted(descriptor: int) -> bool:
    """Say whether the mount that a descriptor was opened on is still there; True where that is not known."""
    for line in read_text("/proc/self/fdinfo/%d" % descriptor).splitlines():
        if line.startswith("mnt_id:"):
            number = line.split()[1]
            mounts = read_text("/proc/self/mountinfo").splitlines()
            return any(mount.split(" ", 1)[0] == number for mount in mounts)
    return True


def name_once(new: str, path: str) -> bool:
    """Give a whole file a name that nothing has yet; return False where something has it.

    By a hard link. On a file system without them by a rename under a lock of the folder: a killed process leaves
    nothing behind that keeps others out. The file may keep its old name.

    Raises:
        OSError: the file system takes no such name.
    """
    try:
        os.link(new, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_once(new, path)
    return True


def exchange(one: str, other: str) -> bool:
    """Let two files have each other's name, at once; return whether the system and the file system can.

    It takes no inode, which a hard link does on tmpfs.
    """
    library = libc()
    if library is None or not LINUX or not hasattr(library, "renameat2"):
        return False
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
    return int(library.renameat2(here, os.fsencode(one), here, os.fsencode(other), both)) == 0


def _rename_once(new: str, path: str) -> bool:
    import fcntl

    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if os.path.lexists(path):
                return False
        except OSError:  # folders cannot be locked here: whoever makes the empty file first may replace it
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                return False
        os.rename(new, path)
    finally:
        os.close(folder)
    return True


def splice(source: int, target: int, count: int) -> int:
    """Move bytes from a pipe into a file inside the kernel, so that a killed reader has none in hand.

    Returns how many were moved, 0 at the end of the pipe.

    Raises:
        BlockingIOError: nothing waits in the pipe.
        OSError: EINVAL or ENOSYS where the system or the file system cannot; else what writing met (ENOSPC).
    """
    moved = _splice(source, target, count)
    if moved < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return moved


def _splice(source: int, target: int, count: int) -> int:
    nonblock = 2
    if hasattr(os, "splice"):
        return os.splice(source, target, count, flags=nonblock)
    library = libc()
    if library is None or not LINUX:
        raise OSError(errno.ENOSYS, "no splice here")
    return int(library.splice(source, None, target, None, count, nonblock))


def tee(source: int, target: int, count: int) -> int:
    """Copy bytes from a pipe into another one, from which they are not taken; return how many were copied.

    Raises:
        BlockingIOError: nothing waits in the pipe.
        OSError: ENOSYS where the system has no such call.
    """
    library = libc()
    if library is None or not LINUX:
        raise OSError(errno.ENOSYS, "no tee here")
    copied = int(library.tee(source, target, count, 2))
    if copied < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return copied


def user_name(uid: int = -1) -> str:
    """Return a user's name, our own unless a number is given; the number where it has no name."""
    uid = os.getuid() if uid < 0 else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_text(path: str) -> str:
    """Return a small file's text; empty when it cannot be read."""
    return read_bytes(path).decode("utf-8", "replace")


def read_bytes(path: str) -> bytes:
    """Return a file's bytes; of one that cannot be read those before, such as when a process ends under our hands."""
    parts: list[bytes] = []
    try:  # noqa: SIM105  # learners do without contextlib
        parts.extend(_parts_of(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
    except OSError:
        pass  # the list keeps what came before
    return b"".join(parts)


def content_of(path: str) -> bytes:
    """Return a file's bytes; empty when it is not there.

    Raises:
        OSError: nobody knows what is there: a mount has ended, or does not have it yet (rclone reads what is still to
            be uploaded as missing, though it opens it).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    return b"".join(_parts_of(descriptor))


def _parts_of(descriptor: int) -> Iterator[bytes]:
    try:
        while part := os.read(descriptor, 65536):
            yield part
    finally:
        os.close(descriptor)


def libc() -> Any:  # a ctypes library has no narrower type
    """Return the C library; None where it cannot be called."""
    global _library
    if _library is None:
        try:
            import ctypes

            _library = ctypes.CDLL(None, use_errno=True)
            if LINUX:
                _library.splice.restype = _library.tee.restype = ctypes.c_ssize_t
                number, offset = ctypes.c_int, ctypes.c_void_p
                _library.tee.argtypes = [number, number, ctypes.c_size_t, ctypes.c_uint]
                _library.splice.argtypes = [number, offset, number, offset, ctypes.c_size_t, ctypes.c_uint]
        except (ImportError, OSError, AttributeError):
            return None
    return _library


def output_of(argv: list[str]) -> str:
    """Return a command's stdout; empty when it is missing or fails."""
    return pid_and_output_of(argv)[1]


def pid_and_output_of(argv: list[str]) -> tuple[int, str]:
    """Return the pid that a command had, since ``ps`` lists itself, and what it printed."""
    import subprocess

    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            output = process.communicate()[0]
    except OSError:
        return 0, ""
    return process.pid, output.decode("utf-8", "replace")
