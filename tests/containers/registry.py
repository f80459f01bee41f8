"""A registry on loopback that has one image, made of what the engine has, for whoever knows its password."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

USER, PASSWORD = "someone", "a password"
TYPES = "application/vnd.docker."
MANIFEST_TYPE = f"{TYPES}distribution.manifest.v2+json"


@dataclass(slots=True)
class Registry:
    """What it serves, and what was asked of it."""

    address: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def image(self) -> str:
        """How its image is named."""
        return f"{self.address}/team/image:1"


@contextmanager
def registry_of(image: str) -> Iterator[Registry]:
    """Serve an image that the engine has."""
    allowed = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != allowed:
                self._answer(401, b"{}", WWW_Authenticate='Basic realm="tests"')
                return
            served.asked.append(f"{self.command} {self.path}")
            kind, _, name = self.path.rpartition("/")
            if self.path == "/v2/":
                self._answer(200, b"{}")
            elif kind.endswith("/manifests"):
                manifest = served.blobs["manifest"]
                digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
                self._answer(200, manifest, Content_Type=MANIFEST_TYPE, Docker_Content_Digest=digest)
            elif name in served.blobs:
                self._answer(200, served.blobs[name], Content_Type="application/octet-stream")
            else:
                self._answer(404, b'{"errors": [{"code": "BLOB_UNKNOWN"}]}')

        do_HEAD = do_GET

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Registry(f"127.0.0.1:{server.server_port}", _blobs(image))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
            subprocess.run(["docker", "rmi", "-f", served.image], capture_output=True)


def docker_config(registry: Registry) -> str:
    """Return a Docker configuration that knows the password."""
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return json.dumps({"auths": {registry.address: {"auth": auth}}})


def _blobs(image: str) -> dict[str, bytes]:
    saved = subprocess.run(["docker", "save", image], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:

        def read(name: str) -> bytes:
            stream = tar.extractfile(name)
            assert stream is not None
            return stream.read()

        saved = json.loads(read("manifest.json"))[0]
        config = read(saved["Config"])
        layers = [gzip.compress(read(name), 1) for name in saved["Layers"]]
    blobs = {"sha256:" + hashlib.sha256(blob).hexdigest(): blob for blob in (config, *layers)}
    kinds = [f"{TYPES}container.image.v1+json", *[f"{TYPES}image.rootfs.diff.tar.gzip"] * len(layers)]
    first, *rest = (
        {"mediaType": kind, "size": len(blob), "digest": digest}
        for kind, (digest, blob) in zip(kinds, blobs.items(), strict=True)
    )
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": first, "layers": rest}
    return {**blobs, "manifest": json.dumps(manifest).encode()}
