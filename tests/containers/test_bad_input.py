"""What a user can get wrong: one sentence, one hint, the right exit code, and nothing is left of it."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import socket
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.containers.own_engine import own_engine
from tests.containers.own_engine import why_not as why_no_engine
from tests.support.command import Fabric
from tests.support.engine import engine_that_answers
from tests.support.images import BUSYBOX, DEBIAN, NOSHELL
from tests.support.waiting import until
from workbench.paths import Home

ARM = "fabric-test/arm"
DOCKER = ("docker", "-H", "unix:///var/run/docker.sock")
"""Whatever a test's context says."""


@pytest.fixture(autouse=True)
def _engine(engine: None) -> None:
    """Most of it is an engine's message."""


def refused(fabric: Fabric, home: Home, *args: str, code: int, **environment: str) -> str:
    """Run a job that cannot work; return its message once nothing is left."""
    before = networks()
    ran = fabric("run", "--runner", "container", *args, "--", "true", expect=code, **environment)
    jobs = list(home.jobs.iterdir()) if home.jobs.exists() else []
    for job in jobs:
        # One that ran before is removed a moment after its end was reported.
        until(lambda: not containers_of(job.name), lambda: f"the end of {containers_of(job.name)}")  # noqa: B023
        fabric("delete", job.name, "--yes")
        assert not job.exists()
    assert not [name for name in networks() - before if any(job.name[9:] in name for job in jobs)]
    assert "hint: " in ran.stderr
    return ran.stderr


def containers_of(job_id: str) -> list[str]:
    """Name a job's containers."""
    argv = [*DOCKER, "ps", "-aq", "--filter", f"label=fabric.job={job_id}"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


def networks() -> set[str]:
    """Name the engine's networks."""
    argv = [*DOCKER, "network", "ls", "--format", "{{.Name}}"]
    return set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())


def test_no_engine(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, "--image", DEBIAN, code=69, DOCKER_HOST="unix:///nowhere")

    assert "No container engine answers at /nowhere." in message
    assert "--runner process" in message


def test_an_engine_of_another_machine(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, "--image", DEBIAN, code=78, DOCKER_HOST="ssh://me@gpubox")

    assert "The container engine ssh://me@gpubox (DOCKER_HOST) is not on this machine." in message
    assert "fabric backend add NAME ssh://me@gpubox" in message


def test_an_engine_that_does_not_see_our_files(fabric: Fabric, home: Home, clean_environment: Path) -> None:
    if reason := why_no_engine():
        pytest.skip(reason)
    with own_engine(8, hides=str(clean_environment)) as engine:
        message = refused(fabric, home, "--image", BUSYBOX, code=78, DOCKER_HOST=engine.address)
        plain = fabric("run", "--image", BUSYBOX, "--", "echo", "ran", DOCKER_HOST=engine.address)
        assert engine.docker("ps", "-aq") == ""

    assert "does not see this machine's files: it runs somewhere else." in message
    assert "fabric backend add NAME ssh://MACHINE" in message
    assert plain.stdout == "ran\n"
    assert "does not see this machine's files" in plain.stderr


def test_an_engine_that_is_too_old(fabric: Fabric, home: Home) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
    version = head + b'{"Version": "18.09.1", "ApiVersion": "1.39"}'
    with engine_that_answers(head + b"{}", {b"/version": version}) as path:
        message = refused(fabric, home, "--image", DEBIAN, code=78, DOCKER_HOST=f"unix://{path}")

    assert f"The container engine at {path} is too old: 18.09.1." in message
    assert "Docker 19.03 and podman 4 are the oldest that work." in message


def test_an_engine_that_a_docker_context_names(
    fabric: Fabric, home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for name, address in (("here", "unix:///var/run/docker.sock"), ("gone", "unix:///gone.sock")):
        argv = ["docker", "context", "create", name, "--docker", f"host={address}"]
        subprocess.run(
            argv, check=True, capture_output=True, env={"HOME": str(clean_environment), "PATH": PATH}
        )
    ran = fabric("run", "--image", BUSYBOX, "--", "echo", "ran", DOCKER_CONTEXT="here")
    subprocess.run(
        ["docker", "context", "use", "gone"],
        check=True,
        capture_output=True,
        env={"HOME": str(clean_environment), "PATH": PATH},
    )
    message = refused(fabric, home, "--image", DEBIAN, code=69)

    assert ran.stdout == "ran\n"
    assert "No container engine answers at /gone.sock." in message


PATH = "/usr/local/bin:/usr/bin:/bin"


@contextmanager
def registry(status: int, body: str, **headers: str) -> Iterator[str]:
    """Serve a registry on loopback that says one thing of every image; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            whole = self.path == "/v2/" and status != 401
            self.send_response(200 if whole else status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", "0" if whole else str(len(body)))
            self.end_headers()
            if not whole and self.command == "GET":
                self.wfile.write(body.encode())

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_image_that_its_registry_does_not_have(fabric: Fabric, home: Home) -> None:
    body = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]})
    with registry(404, body, Content_Type="application/json") as address:
        message = refused(fabric, home, "--image", f"{address}/me/none:1", code=75)

    assert f"The image {address}/me/none:1 cannot be pulled: " in message
    assert "Check its name and tag." in message


def test_an_image_that_is_not_ours_to_pull(fabric: Fabric, home: Home) -> None:
    body = json.dumps({"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]})
    with registry(401, body, WWW_Authenticate='Basic realm="r"', Content_Type="application/json") as address:
        message = refused(fabric, home, "--image", f"{address}/me/private:1", code=75)

    assert "there is none of that name, or you have no right to it" in message
    assert "docker login" in message


def test_an_image_of_another_architecture(fabric: Fabric, home: Home, tmp_path: Path) -> None:
    subprocess.run(["docker", "load"], input=arm_image(), check=True, capture_output=True)
    try:
        message = refused(fabric, home, "--image", ARM, code=69)
    finally:
        subprocess.run(["docker", "rmi", ARM], check=True, capture_output=True)

    assert f"The image {ARM} is for arm64, and this machine is " in message
    assert "Take one that is made for" in message


def arm_image() -> bytes:
    """Return an image of nothing, for a machine that this is not, as ``docker save`` writes it."""
    layer, buffer = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w"):
        pass
    digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "arm64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
        "history": [{"created": "2020-01-01T00:00:00Z"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [f"{ARM}:latest"], "Layers": ["layer.tar"]}]
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in (
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
            ("layer.tar", layer.getvalue()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_an_image_without_a_shell(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, "--image", NOSHELL, code=125)

    assert f"the image {NOSHELL} has no sh, and without one nothing can be run in it" in message
    assert "take an image that has a shell" in message


def test_an_image_that_is_not_here_and_may_not_be_pulled(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, "--image", "nobody/has:this", "--set", "image_pull=never", code=75)

    assert "The image nobody/has:this is not here, and image_pull is never." in message


def test_no_image(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, code=65)

    assert "The job has no image; the runner container needs one." in message


def test_more_gpus_than_there_are(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, "--image", DEBIAN, "--gpus", "99", code=69)

    assert "The job asks for 99 GPUs; this machine has " in message


def test_a_port_in_use(fabric: Fabric, home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = refused(fabric, home, "--image", BUSYBOX, "--set", f"ports=[{port}]", code=125)

    assert "a port that the job publishes is in use" in message
    assert "choose another with ports:" in message


def test_memory_below_what_a_container_needs(fabric: Fabric, home: Home) -> None:
    message = refused(fabric, home, "--image", BUSYBOX, "--set", "memory=1MiB", code=65)

    assert "The job asks for 1048576 bytes of memory; a container needs at least 6 MiB." in message
