"""OpenStack's Swift on one disk of this machine, with its own authentication (version 1, as SoftLayer's was)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.store_servers import free_port
from tests.support.waiting import patience

USER, KEY = "test:tester", "canary-swift-4711"
_KINDS = ("account", "container", "object")
_COMMON = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = root
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
log_address = {folder}/no-log
"""
_SERVER = """\
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """\
[pipeline:main]
pipeline = catch_errors cache tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {key} .admin
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memory}
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


class Swift:
    """Its servers."""

    def __init__(self, folder: Path) -> None:
        programs = [
            "memcached",
            "swift-ring-builder",
            *(f"swift-{kind}-server" for kind in ("proxy", *_KINDS)),
        ]
        if lacking := [name for name in programs if shutil.which(name) is None]:
            pytest.skip(f"OpenStack's Swift is not installed: {', '.join(lacking)}")
        (folder / "devices" / "disk").mkdir(parents=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}/auth/v1.0"

    def start(self) -> None:
        """Serve; it does not answer at once."""
        memory = free_port()
        self._run("memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(memory))
        for kind in _KINDS:
            port = free_port()
            self._make_ring(kind, port)
            self._serve(kind, port, _SERVER.format(kind=kind))
        self._serve("proxy", self._port, _PROXY.format(key=KEY, memory=memory))

    def stop(self) -> None:
        """End all of it."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _make_ring(self, kind: str, port: int) -> None:
        """Say where things of a kind are: all on the one disk."""
        where = ["--region", "1", "--zone", "1", "--ip", "127.0.0.1", "--port", str(port)]
        for args in (
            ["create", "4", "1", "1"],
            ["add", *where, "--device", "disk", "--weight", "1"],
            ["rebalance"],
        ):
            argv = ["swift-ring-builder", str(self._folder / f"{kind}.builder"), *args]
            subprocess.run(argv, check=True, capture_output=True, timeout=patience())

    def _serve(self, kind: str, port: int, text: str) -> None:
        file = self._folder / f"{kind}.conf"
        file.write_text(_COMMON.format(port=port, folder=self._folder) + text)
        self._run(f"swift-{kind}-server", str(file))

    def _run(self, *argv: str) -> None:
        with (self._folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            )
