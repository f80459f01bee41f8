"""A Docker engine of a test's own, which may be killed, stopped and filled up: the machine's is not touched.

It has its own folders, socket and bridge, and writes no packet filter rules. (``--bridge=none`` is no way: an engine
that is started with it removes the other one's ``docker0``.)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.images import BUSYBOX
from tests.support.waiting import patience, until

RUNTIME = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'


def why_not() -> str:
    """Say why none can be started here, or nothing."""
    if os.geteuid() != 0:
        return "needs root: an engine is started for the test"
    missing = [program for program in ("dockerd", "containerd", "ip") if shutil.which(program) is None]
    return f"no {missing[0]}" if missing else ""


class OwnEngine:
    """One engine; not started yet."""

    def __init__(
        self, folder: Path, number: int, *, live_restore: bool = False, pool: str = "", hides: str = ""
    ) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self.data = folder / "data"
        self._bridge = f"fab{secrets.token_hex(4)}"
        self._network = f"10.213.{number}.1/24"
        self._live_restore = live_restore
        self._pool = pool
        self._hides = hides
        self._process: subprocess.Popen[bytes] | None = None
        self._runtime: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OwnEngine:
        self.data.mkdir(parents=True, exist_ok=True)
        for args in (
            ("link", "add", self._bridge, "type", "bridge"),
            ("addr", "add", self._network, "dev", self._bridge),
            ("link", "set", self._bridge, "up"),
        ):
            subprocess.run(["ip", *args], check=True)
        # A service of its own, as machines have it: it outlives an engine that is killed.
        (self.folder / "containerd.toml").write_text(RUNTIME)
        folders = [
            f"--root={self.folder}/cd",
            f"--state={self.folder}/cs",
            f"--address={self._runtime_socket}",
        ]
        self._runtime = self._spawn("containerd", f"--config={self.folder}/containerd.toml", *folders)
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        if self.is_up():
            for name in self.docker("ps", "-aq").split():
                self.docker("rm", "-f", name, check=False)
        self.stop()
        if self._runtime is not None:
            self._runtime.kill()
            self._runtime.wait()
        # Shims outlive an engine that was killed.
        for pid in _belonging_to(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "link", "del", self._bridge], check=False)
        for mount in _mounts_in(self.folder):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        argv = [
            "dockerd",
            f"--host={self.address}",
            f"--data-root={self.data}",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/pid",
            f"--bridge={self._bridge}",
            f"--containerd={self._runtime_socket}",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--userland-proxy=false",
            f"--live-restore={str(self._live_restore).lower()}",
        ]
        if self._pool:
            argv.append(f"--default-address-pool={self._pool}")
        if self._hides:
            # As an engine in a CI job's own world, whose socket alone is handed in.
            script = f'mount -t tmpfs none {self._hides} && exec "$@"'
            argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *argv]
        (self.folder / "pid").unlink(missing_ok=True)
        self._process = self._spawn(*argv)
        until(self._has_come_up, self._log, every=0.05)

    def _has_come_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._log()
        return self.is_up()

    def _log(self) -> str:
        return (self.folder / "log").read_text()[-2000:]

    @property
    def _runtime_socket(self) -> str:
        return f"{self.folder}/containerd.sock"

    def _spawn(self, *argv: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def is_up(self) -> bool:
        """Say whether it answers."""
        if self._process is None or self._process.poll() is not None:
            return False
        argv = ["docker", "-H", self.address, "version"]
        return subprocess.run(argv, capture_output=True, timeout=patience(30)).returncode == 0

    def load(self, image: str = BUSYBOX) -> None:
        """Bring an image over from the machine's engine."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
            subprocess.run(
                ["docker", "-H", self.address, "load"], stdin=saved.stdout, check=True, capture_output=True
            )

    def docker(self, *args: str, check: bool = True) -> str:
        """Run docker's own command on it and return what that prints."""
        argv = ["docker", "-H", self.address, *args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=patience(60))
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def kill(self) -> None:
        """Kill it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Have it end as a machine's service would be."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience(20))
            except subprocess.TimeoutExpired:
                self.kill()

    def hang(self) -> None:
        """Make it answer nothing any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def own_engine(
    number: int, *, live_restore: bool = False, disk: Path | None = None, pool: str = "", hides: str = ""
) -> Iterator[OwnEngine]:
    """Start an engine with the small image, on a disk of its own where one is given; all of it goes afterwards."""
    # A short path: sockets allow 100 characters.
    folder = disk or Path(tempfile.mkdtemp(prefix="fab-engine-", dir="/var/tmp"))
    try:
        with OwnEngine(folder, number, live_restore=live_restore, pool=pool, hides=hides) as engine:
            engine.start()
            engine.load()
            yield engine
    finally:
        if disk is None:
            shutil.rmtree(folder, ignore_errors=True)


def _belonging_to(folder: Path) -> list[int]:
    """List the processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def _mounts_in(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return sorted(
        (line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")), reverse=True
    )
