"""A server that answers as an API server may: too old, too busy, cut off; for what no real one can be had."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.kubeconfig import resolve
from backends.kubernetes.options import checked_options


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call is answered."""

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    hangs: bool = False
    """Says nothing until the server ends."""

    promised: int | None = None
    """How many bytes it says will come, before it cuts the connection."""

    @property
    def body(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.document).encode()


def status(code: int, reason: str, message: str, **headers: str) -> Answer:
    """Refuse as the API does."""
    document = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Answer(document, code, {key.replace("_", "-"): value for key, value in headers.items()})


VERSION = Answer({"major": "1", "minor": "34"})


@dataclass(slots=True)
class Server:
    """Answers each path with what it has for it, one after the other; the last for ever."""

    address: str
    folder: Path
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[tuple[float, str, str]] = field(default_factory=list)
    """When, which path, and by whom (the authorization header)."""

    def says(self, path: str, *answers: Answer) -> None:
        self.answers[path] = list(answers)

    def kubeconfig(self, user: Mapping[str, Any] | None = None, **cluster: Any) -> Path:
        path = self.folder / "stub.kubeconfig"
        settings = {key.replace("_", "-"): value for key, value in cluster.items()}
        document = {
            "clusters": [{"name": "c", "cluster": {"server": self.address, **settings}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "stub", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "stub",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def cluster(
        self,
        user: Mapping[str, Any] | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **cluster: Any,
    ) -> KubernetesCluster:
        access = resolve("", kubeconfig=str(self.kubeconfig(user, **cluster)), environ={})
        return KubernetesCluster(access, checked_options("stub", settings or {}))


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Serve until the block ends."""
    ending = threading.Event()
    handler = type("Handler", (_Handler,), {"ending": ending, "wanted": lambda path, who: wanted(path, who)})
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listening.daemon_threads = True
    server = Server(f"http://127.0.0.1:{listening.server_address[1]}", folder)
    lock = threading.Lock()

    def wanted(path: str, who: str) -> Answer:
        with lock:
            server.asked.append((time.monotonic(), path, who))
            left = server.answers.get(path, [])
            if not left:
                return status(404, "NotFound", f"nothing at {path}")
            return left.pop(0) if len(left) > 1 else left[0]

    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        ending.set()
        listening.shutdown()
        listening.server_close()
        thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ending: threading.Event
    wanted: Callable[[str, str], Answer]

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.rfile.read(length)
        answer = type(self).wanted(self.path.partition("?")[0], self.headers.get("authorization") or "")
        if answer.hangs:
            self.ending.wait(60)
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("content-length", str(answer.promised or len(answer.body)))
        self.send_header("content-type", "application/json")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)
        self.close_connection = answer.promised is not None

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass
