"""Stores for tests: rclone serving a folder, as S3, WebDAV or SFTP, with credentials of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.ports import free_port as free_port
from tests.support.waiting import until
from workbench.data.stores.rclone import find_rclone
from workbench.spec import DataStore

KEY = "canary-key-4711"
SECRET = "canary-secret-hush-0815"


class Server:
    """A store on loopback; its containers are the folders below ``folder``."""

    def __init__(self, kind: str, folder: Path, *args: str, host: str = "127.0.0.1") -> None:
        self.kind = kind
        self.folder = folder
        self.host = host
        self.port = free_port(host)
        self.login = (KEY, SECRET)
        self._args = args
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve, by the same port every time."""
        login = {
            "s3": ["--auth-key", ",".join(self.login)],
            "webdav": ["--user", self.login[0], "--pass", self.login[1]],
            "sftp": ["--user", self.login[0], "--pass", self.login[1]],
        }[self.kind]
        self._process = subprocess.Popen(
            [find_rclone().path, "serve", self.kind, "--addr", f"{self.host}:{self.port}", *login, *self._args,
             str(self.folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder.parent), "RCLONE_CONFIG": "",
                 "GOGC": "400"},
        )  # fmt: skip
        try:
            until(self._answers, "the store to answer")
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the store ended at once"
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1):
            return True
        return False

    def ask_other_keys(self) -> None:
        """Believe nobody that it believed before, as when keys are withdrawn."""
        self.stop()
        before, self.login = self.login, ("somebody", "else-altogether")
        try:
            self.start()
        finally:
            self.login = before

    def stop(self) -> None:
        """Be gone at once, as a store is that is cut off."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def address(self) -> str:
        return f"{'sftp' if self.kind == 'sftp' else 'http'}://{self.host}:{self.port}"

    @property
    def type(self) -> str:
        return "mount_cos" if self.kind == "s3" else self.kind

    def store(self, **fields: Any) -> DataStore:
        """Return it as a job's data store; ``connection`` adds to how it is reached."""
        connection: Mapping[str, str] = fields.pop("connection", {})
        values = {
            "id": "sl-internal-os",
            "type": self.type,
            "training_data": "tf_training_data",
            "training_results": "tf_trained_model",
            **fields,
        }
        login = {"auth_url": self.address, "user_name": KEY, "password": SECRET}
        return DataStore(**values, connection={**login, **connection})

    def results(self, job_id: str) -> Path:
        """Return the folder that a job's results are in."""
        return self.folder / "tf_trained_model" / job_id

    def write(self, path: str, content: str | bytes) -> Path:
        """Put a file into the store, from behind."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file


def serving(kind: str, folder: Path, *args: str, host: str = "127.0.0.1") -> Iterator[Server]:
    """Serve a folder with FfDL's two containers."""
    for name in ("tf_training_data", "tf_trained_model"):
        (folder / name).mkdir(parents=True)
    server = Server(kind, folder, *args, host=host)
    server.write("tf_training_data/train.txt", "one\ntwo\n")
    server.write("tf_training_data/sub/more.txt", "three\n")
    server.start()
    try:
        yield server
    finally:
        server.stop()
