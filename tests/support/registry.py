"""A registry on loopback that has one image, for whoever knows its password or has a token."""

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
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs

USER, PASSWORD = "someone", "a password"
IDENTITY_TOKEN, REGISTRY_TOKEN = "an-identity-token", "a-registry-token"
"""What its own server takes for a login, and what it takes itself."""
_GRANTED = "a-granted-token"
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
def registry_of(image: str, *, password: str = PASSWORD, grants_tokens: bool = False) -> Iterator[Registry]:
    """Serve an image that the engine has."""
    saved = subprocess.run(["docker", "save", image], check=True, capture_output=True).stdout
    with _serving(_blobs(io.BytesIO(saved), ""), password, grants_tokens=grants_tokens) as served:
        try:
            yield served
        finally:
            subprocess.run(["docker", "rmi", "-f", served.image], capture_output=True)


@contextmanager
def registry_of_archive(archive: Path, image: str) -> Iterator[Registry]:
    """Serve one image of an archive."""
    with archive.open("rb") as stream:
        blobs = _blobs(stream, image)
    with _serving(blobs) as served:
        yield served


@contextmanager
def _serving(
    blobs: dict[str, bytes], password: str = PASSWORD, *, grants_tokens: bool = False
) -> Iterator[Registry]:
    """Serve it; one that grants tokens takes no password itself, as Docker Hub and those of clouds do."""
    basic = f"Basic {auth_of(USER, password)}"
    allowed = (f"Bearer {_GRANTED}", f"Bearer {REGISTRY_TOKEN}") if grants_tokens else (basic,)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") not in allowed:
                realm = f'Bearer realm="http://{served.address}/token",service="tests"'
                self._answer(401, b"{}", WWW_Authenticate=realm if grants_tokens else 'Basic realm="tests"')
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

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if form.get("refresh_token") == [IDENTITY_TOKEN]:
                granted = {"access_token": _GRANTED, "expires_in": 300}
                self._answer(200, json.dumps(granted).encode(), Content_Type="application/json")
            else:
                self._answer(401, b"{}")

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Registry(f"127.0.0.1:{server.server_port}", blobs)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def auth_of(user: str, password: str) -> str:
    """Return a login as Docker's ``auth``."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def docker_config(registry: Registry) -> str:
    """Return a Docker configuration that knows the password."""
    auth = auth_of(USER, PASSWORD)
    return json.dumps({"auths": {registry.address: {"auth": auth}}})


def _blobs(archive: IO[bytes], image: str) -> dict[str, bytes]:
    """Return what a registry has of an image in an archive; of the first one where none is named."""
    with tarfile.open(fileobj=archive) as tar:

        def read(name: str) -> bytes:
            stream = tar.extractfile(name)
            assert stream is not None
            return stream.read()

        images = json.loads(read("manifest.json"))
        saved = next(one for one in images if not image or image in one["RepoTags"])
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
