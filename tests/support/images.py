"""Images for the tests, made once without a registry and cached: as tar files, and in the engine by name.

=====================  ===============================================================
``fabric-test/debian``   Debian with Python 3.11, bash, user root
``fabric-test/user``     the same, user 1234 without a name, working directory /
``fabric-test/old``      the same, but ``python3`` is a stub that says 3.5 and does nothing
``fabric-test/busybox``  only busybox: no Python, no bash, no flock
``fabric-test/noshell``  one static program and no shell
``fabric-test/small``    busybox with user 1234, made for who asks for it
=====================  ===============================================================
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

DEBIAN, USER, OLD, BUSYBOX, NOSHELL = (
    f"fabric-test/{name}" for name in ("debian", "user", "old", "busybox", "noshell")
)
SMALL_USER = "fabric-test/small"
CACHE = Path(os.environ.get("FABRIC_TEST_CACHE") or Path("/var/tmp") / f"fabric-test-images-{os.getuid()}")
BUSYBOX_PROGRAM = Path("/bin/busybox")
OLD_PYTHON = b"""#!/bin/sh
case "$*" in
*--version* | -V) echo "Python 3.5.2" ;;
*) echo "this Python is too old" >&2; exit 1 ;;
esac
"""


_found: set[str] = set()
"""The engines, by ``DOCKER_HOST``, that this process knows to answer; below, to have the images too."""
_filled: set[str] = set()


def why_not() -> str:
    """Say why images cannot be made here, or nothing; an engine that has answered is not asked again."""
    engine = os.environ.get("DOCKER_HOST", "")
    if engine in _found:
        return ""
    if not (reason := _why_not()):
        _found.add(engine)
    return reason


def _why_not() -> str:
    if shutil.which("docker") is None:
        return "no docker command"
    if subprocess.run(["docker", "version"], capture_output=True).returncode:
        return "no Docker engine answers"
    if not BUSYBOX_PROGRAM.exists():
        return "no static busybox (Debian's busybox-static)"
    can_make = (CACHE / "debian.tar").exists() or (shutil.which("debootstrap") and os.getuid() == 0)
    if not can_make and not _has(DEBIAN):
        return "no debootstrap, or not root, to make a Debian image"
    return ""


def ensure_images() -> None:
    """Make what is missing of the images, one process at a time, and once in a process."""
    if (engine := os.environ.get("DOCKER_HOST", "")) in _filled:
        return
    with one_at_a_time():
        if not _has(DEBIAN):
            _import(debian_tar(), DEBIAN, 'CMD ["/bin/bash"]')
        if not _has(USER):
            _import(debian_tar(), USER, "USER 1234:1234", "WORKDIR /")
        if not _has(OLD):
            _build(OLD, DEBIAN, {"usr/local/bin/python3": OLD_PYTHON, "usr/local/bin/python": OLD_PYTHON})
        program = BUSYBOX_PROGRAM.read_bytes()
        if not _has(BUSYBOX):
            _import_bytes(tree({"bin/busybox": program}, links=applets()), BUSYBOX)
        if not _has(NOSHELL):
            _import_bytes(tree({"program": program}), NOSHELL)
    _filled.add(engine)


def ensure_small_user() -> None:
    """Make an image with a user of its own that an engine takes in a moment."""
    with one_at_a_time():
        if not _has(SMALL_USER):
            files = tree({"bin/busybox": BUSYBOX_PROGRAM.read_bytes()}, links=applets())
            _import_bytes(files, SMALL_USER, "USER 1234:1234", "WORKDIR /")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the cache: images are made by one process."""
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _has(name: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode == 0


def debian_tar(name: str = "debian", packages: Sequence[str] = ()) -> Path:
    """Return a Debian's files, made once under each name; with more packages than others have."""
    tar = CACHE / f"{name}.tar"
    if not tar.exists():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "root"
            argv = [
                "debootstrap",
                "--variant=minbase",
                "--include=" + ",".join(("python3", "ca-certificates", *packages)),
                "bookworm",
                str(root),
            ]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
                shutil.rmtree(root / waste, ignore_errors=True)
            (root / "usr/bin/python").symlink_to("python3")
            part = tar.with_suffix(".part")
            subprocess.run(["tar", "-C", str(root), "-cf", str(part), "."], check=True)
            part.rename(tar)
    return tar


def ensure_image_with(name: str, packages: Sequence[str], *changes: str) -> None:
    """Make an image of Debian with more packages, once; the changes are lines of a Dockerfile."""
    with one_at_a_time():
        if not _has(name):
            _import(debian_tar(name.rpartition("/")[2], packages), name, *changes)


def ensure_image_over(name: str, base: str, files: Mapping[str, bytes]) -> None:
    """Make an image that adds files below ``usr`` to another one, once; other files need another name."""
    with one_at_a_time():
        if not _has(name):
            _build(name, base, files)


def _import(tar: Path, name: str, *changes: str) -> None:
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(["docker", "import", *options, str(tar), name], check=True, stdout=subprocess.DEVNULL)


def _import_bytes(tar: bytes, name: str, *changes: str) -> None:
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(
        ["docker", "import", *options, "-", name], input=tar, check=True, stdout=subprocess.DEVNULL
    )


def _build(name: str, base: str, files: Mapping[str, bytes]) -> None:
    dockerfile = f"FROM {base}\nCOPY usr /usr\n".encode()
    context = tree({**files, "Dockerfile": dockerfile})
    subprocess.run(
        ["docker", "build", "-q", "-t", name, "-"], input=context, check=True, stdout=subprocess.DEVNULL
    )


def applets() -> dict[str, str]:
    """Return the links to busybox's commands, without those that learners must do without."""
    listed = subprocess.run(
        [BUSYBOX_PROGRAM, "--list"], check=True, capture_output=True, text=True
    ).stdout.split()
    return {f"bin/{name}": "busybox" for name in listed if name not in ("busybox", "flock", "bash")}


def tree(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()
