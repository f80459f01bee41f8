"""A package index on loopback with one small package, so that no test needs a registry."""

from __future__ import annotations

import base64
import hashlib
import http.server
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "fabric_sample"


def make_wheel(folder: Path, version: str = "1.0") -> Path:
    """Write a wheel whose one module says its version."""
    info = f"{NAME}-{version}.dist-info"
    files = {
        f"{NAME}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(name, text)
    return path


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for the loopback address that no machine knows, and its key."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    return certificate, key


@contextmanager
def served_index(folder: Path, tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Serve an index of the package, by HTTPS with a certificate and key; yields its address and ends with it."""
    package = folder / "simple" / NAME.replace("_", "-")
    package.mkdir(parents=True)
    wheel = make_wheel(package)
    (package / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type] # those of the server

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
