"""podman's API socket for the tests, as it works without systemd and with old cgroups."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.images import CACHE, why_not
from tests.support.waiting import ended, until

SETTINGS = """
[containers]
default_ulimits=["nofile=1024:1024","nproc=1024:1024"]
[engine]
runtime="runc"
events_logger="file"
"""


@dataclass(frozen=True, slots=True)
class Podman:
    """A podman of one user."""

    root: Path
    environment: Mapping[str, str]
    user: str = ""
    """Whose it is; empty for us."""
    options: Sequence[str] = ()

    def argv(self, *args: str) -> list[str]:
        """Return a command of this podman."""
        folders = ("--root", str(self.root / "storage"), "--runroot", str(self.root / "run"))
        become = (
            ("setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups") if self.user else ()
        )
        return [*become, "podman", *folders, *self.options, *args]

    def run(self, *args: str, check: bool = True) -> str:
        """Run a command of this podman and return what it prints."""
        done = subprocess.run(
            self.argv(*args), capture_output=True, text=True, env=dict(self.environment), cwd="/"
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def load(self, *images: str) -> None:
        """Bring images over from Docker's engine, those that are not here yet."""
        if missing := [name for name in images if not self._has(name)]:
            with subprocess.Popen(["docker", "save", *missing], stdout=subprocess.PIPE) as saved:
                subprocess.run(
                    self.argv("load"),
                    stdin=saved.stdout,
                    check=True,
                    capture_output=True,
                    env=dict(self.environment),
                    cwd="/",
                )

    def _has(self, name: str) -> bool:
        argv = self.argv("image", "exists", f"localhost/{name}")
        return subprocess.run(argv, env=dict(self.environment), capture_output=True, cwd="/").returncode == 0


def why_no_podman() -> str:
    """Say why podman cannot be tested here, or nothing."""
    return "no podman" if shutil.which("podman") is None else why_not()


def roots_podman() -> Podman:
    """Return root's podman; its images are kept from one run to the next."""
    root = CACHE / "podman"
    root.mkdir(parents=True, exist_ok=True)
    settings = root / "containers.conf"
    settings.write_text(SETTINGS)
    # A sixth of what a short command takes would go into looking for garbage.
    return Podman(root, {"PATH": os.environ["PATH"], "CONTAINERS_CONF": str(settings), "GOGC": "400"})


@contextmanager
def served(podman: Podman) -> Iterator[str]:
    """Serve its API, in a folder of its own; yields the address."""
    folder = Path(tempfile.mkdtemp(prefix="fab-podman-"))
    if podman.user:
        shutil.chown(folder, podman.user)
    address = f"unix://{folder}/podman.sock"
    log = folder / "log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            podman.argv("system", "service", "--time=0", address),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(podman.environment),
            cwd="/",
            start_new_session=True,
        )
    try:

        def serves() -> bool:
            assert service.poll() is None, log.read_text()
            with socket.socket(socket.AF_UNIX) as asked:  # the file is there before anybody listens
                return asked.connect_ex(str(folder / "podman.sock")) == 0

        until(serves, lambda: f"podman to serve: {log.read_text()}")
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.pid, signal.SIGTERM)
        ended(service)
        shutil.rmtree(folder, ignore_errors=True)
