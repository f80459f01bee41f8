"""A jump host and a target in network namespaces of the tests' own: links that are really cut and throttled."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ssh.bare import with_processes
from tests.support.sshd import Daemon, User


@dataclass(frozen=True, slots=True)
class Lab:
    """Two hosts in a row: the target is reached through the jump host alone."""

    jump: Daemon
    target: Daemon
    tag: str
    near: str
    """The network between us and the jump host, less its last number."""
    far: str
    """The network between the jump host and the target, less its last number."""

    def link(self, state: str) -> None:
        """Set the link between us and the jump host ``up`` or ``down``: nobody is told."""
        _run("ip", "link", "set", f"{self.tag}a", state)
        if state == "up":
            _run("ip", "route", "replace", f"{self.far}.0/24", "via", f"{self.near}.2")

    def throttle(self, rate: str) -> None:
        """Let no more than so much through between us and the jump host in each direction, such as ``8mbit``."""
        for namespace, device in (((), f"{self.tag}a"), (("-n", f"{self.tag}jump"), "outer")):
            _run(
                *("tc", *namespace, "qdisc", "replace", "dev", device, "root", "tbf"),
                *("rate", rate, "burst", "32kbit", "latency", "400ms"),
            )

    def config(self, user: User, key: Path, known_hosts: Path) -> str:
        """Return what ``~/.ssh/config`` says of both."""
        common = f"  User {user.name}\n  IdentityFile {key}\n  UserKnownHostsFile {known_hosts}\n"
        return (
            f"Host jump\n  HostName {self.near}.2\n{common}"
            f"Host target\n  HostName {self.far}.2\n  ProxyJump jump\n{common}"
        )

    def known_lines(self) -> str:
        """Return the lines that known_hosts has of both."""
        return self.jump.known_line(f"{self.near}.2") + self.target.known_line(f"{self.far}.2")


@contextmanager
def lab(
    folder: Path, user: User, public_key: Path, leases: Path, *, root: Path | None = None
) -> Iterator[Lab]:
    """Make the namespaces, the links and both sshds; nothing is left of them.

    ``root`` is what the target's users see in place of this machine.
    """
    tag = f"f{secrets.token_hex(3)}"
    near, far = free_networks()
    jump, target = f"{tag}jump", f"{tag}target"
    daemons: list[Daemon] = []
    try:
        for name in (jump, target):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "link", "add", f"{tag}a", "type", "veth", "peer", "name", "outer", "netns", jump)
        _run(
            "ip", "-n", jump, "link", "add", "inner", "type", "veth", "peer", "name", "outer", "netns", target
        )
        _run("ip", "address", "add", f"{near}.1/24", "dev", f"{tag}a")
        _run("ip", "link", "set", f"{tag}a", "up")
        for name, device, address in (
            (jump, "outer", f"{near}.2/24"),
            (jump, "inner", f"{far}.1/24"),
            (target, "outer", f"{far}.2/24"),
        ):
            _run("ip", "-n", name, "address", "add", address, "dev", device)
            _run("ip", "-n", name, "link", "set", device, "up")
        _run("ip", "-n", target, "route", "add", "default", "via", f"{far}.1")
        for name, address in ((jump, f"{near}.2"), (target, f"{far}.2")):
            settings, within = [f"SetEnv FABRIC_LEASES={leases}"], ["ip", "netns", "exec", name]
            if root is not None and name == target:
                settings.append(f"ChrootDirectory {root}")
                within += with_processes(root)
            daemon = Daemon(folder / name, address, settings=settings, within=within)
            daemon.authorize(user, public_key)
            daemons.append(daemon)
            daemon.start()
        yield Lab(daemons[0], daemons[1], tag, near, far)
    finally:
        for daemon in daemons:
            daemon.stop()
        with contextlib.suppress(AssertionError):
            _run("ip", "link", "del", f"{tag}a")
        for name in (jump, target):
            with contextlib.suppress(AssertionError):
                _run("ip", "netns", "del", name)


def free_networks() -> tuple[str, str]:
    """Draw two networks that this machine has no way to, as their first three numbers: labs run side by side."""
    routes = _run("ip", "route", "show", "table", "all")
    while True:
        second, third = 214 + secrets.randbelow(8), 2 * secrets.randbelow(128)
        near, far = (f"10.{second}.{number}" for number in (third, third + 1))
        if f"{near}." not in routes and f"{far}." not in routes:
            return near, far


def _run(*argv: str) -> str:
    ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, f"{argv}: {ran.stderr}"
    return ran.stdout
