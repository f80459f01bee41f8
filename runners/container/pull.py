"""Pulls images with the login of the job, or those of the user's Docker configuration, and reports progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from runners.container.engine import Engine
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.registry_login import LOGIN_HINT, has_login, login_of
from workbench.errors import BackendUnreachable, FabricError, LaunchRefused, RunnerError
from workbench.formats import size
from workbench.manifest.keys.credentials import LOCATION

if TYPE_CHECKING:
    import types

    from docker.api.client import APIClient

PROGRESS_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 600.0
"""How long a registry that cannot be reached is tried again."""

FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5
_SSH: Final = "docker.transport.sshconn"
_importing = threading.Lock()


class RegistryUnreachable(RunnerError):
    """A registry that does not answer the engine."""


def docker_library() -> types.ModuleType:
    """Import ``docker`` without its SSH transport: that is not used, and importing paramiko takes half of the time."""
    with _importing:
        hidden = _SSH not in sys.modules
        if hidden:
            sys.modules[_SSH] = None  # type: ignore[assignment] # makes importing it fail, which docker expects
        try:
            import docker
        finally:
            if hidden:
                sys.modules.pop(_SSH, None)
        found: types.ModuleType = docker
        return found


def client_of(engine: Engine, *, timeout_seconds: float = 600.0) -> APIClient:
    """Return a client of the docker package that connects through the host."""
    docker_library()
    from docker.api.client import APIClient
    from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

    class Connection(UnixHTTPConnection):  # type: ignore[misc] # the package has no types
        def connect(self) -> None:
            self.sock = engine.host.connect(engine.path)
            self.sock.settimeout(self.timeout)

    class Pool(UnixHTTPConnectionPool):  # type: ignore[misc] # as above
        def _new_conn(self) -> Connection:
            return Connection(self.socket_path, self.timeout)

    class Adapter(UnixHTTPAdapter):  # type: ignore[misc] # as above
        def get_connection(self, url: Any, proxies: Any = None) -> Pool:
            with self.pools.lock:
                found: Pool | None = self.pools.get(url)
                if found is None:
                    found = Pool(self.socket_path, self.timeout, maxsize=self.max_pool_size)
                    self.pools[url] = found
                return found

    client = APIClient(base_url=f"unix://{engine.path}", version=engine.version, timeout=timeout_seconds)
    client.mount("http+docker://", Adapter(f"http+unix://{engine.path}", timeout_seconds))
    return client


@contextmanager
def streamed_from(engine: Engine) -> Iterator[None]:
    """Raise BackendUnreachable where an engine ends the connection, or hangs, in the middle of a streamed answer.

    An error that the engine answers with is raised as it is.
    """
    from http.client import HTTPException

    from requests import exceptions
    from urllib3.exceptions import HTTPError

    broken = (
        exceptions.ConnectionError,
        exceptions.Timeout,
        exceptions.ChunkedEncodingError,
        exceptions.InvalidJSONError,
    )
    try:
        yield
    except (*broken, HTTPError, HTTPException) as error:
        raise BackendUnreachable(
            f"The container engine at {engine.path} did not answer to the end: {error}."
        ) from error


def pull(engine: Engine, reference: str, request: LaunchRequest, progress: LaunchProgress) -> None:
    """Pull an image; a registry that cannot be reached is tried again for minutes.

    Raises:
        LaunchRefused: the image does not exist, the user may not pull it, or its registry does not come back (S103).
    """
    with_patience(lambda: _pull_once(engine, reference, request, progress), progress)


def with_patience(act: Callable[[], None], progress: LaunchProgress) -> None:
    """Call ``act``; while a registry cannot be reached call it again, with growing pauses.

    Raises:
        LaunchRefused: the registry was not reached for ``PATIENCE_SECONDS`` (S103).
    """
    give_up, pause = time.monotonic() + PATIENCE_SECONDS, FIRST_PAUSE_SECONDS
    while True:
        try:
            return act()
        except RegistryUnreachable as error:
            if time.monotonic() + pause > give_up:
                text = f"{error.message} It was tried for {PATIENCE_SECONDS / 60:.0f} minutes."
                raise LaunchRefused(text, hint=error.hint, code="S103") from error
            _wait(pause, f"{error.message} It is tried again in {pause:.0f} s.", progress)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _wait(seconds: float, text: str, progress: LaunchProgress) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        progress(text, stage="preparing")  # it raises when the launch was cancelled
        time.sleep(min(left, _POLL_SECONDS))


def _pull_once(engine: Engine, reference: str, request: LaunchRequest, progress: LaunchProgress) -> None:
    docker_library()
    from docker.errors import APIError, DockerException
    from docker.utils import parse_repository_tag

    login = engine_login(engine, request)
    engine.ask("GET", "_ping")  # so that a missing engine is reported by our error, not the library's
    progress(f"pulls {reference}", stage="preparing")
    repository, tag = parse_repository_tag(reference)
    layers = Layers(reference, progress)
    try:
        with (
            streamed_from(engine),
            closing(client_of(engine)) as client,
            closing(
                client.pull(repository, tag=tag or "latest", stream=True, decode=True, auth_config=login)
            ) as lines,
        ):
            for line in lines:
                if "error" in line:
                    raise not_pulled(reference, str(line["error"]), request)
                layers.update(line)
    except APIError as error:
        raise not_pulled(reference, str(error.explanation or error), request) from error
    except (DockerException, OSError) as error:
        raise not_pulled(reference, str(error), request) from error


def engine_login(engine: Engine, request: LaunchRequest) -> dict[str, str] | None:
    """Return the login of a job as the engine's API takes it; None leaves it to the user's Docker configuration.

    Raises:
        LaunchRefused: a credential has no value (C103), or the engine takes no such token (C104).
    """
    login = login_of(request)
    if login is None:
        return None
    if login.registry_token and engine.is_podman:
        raise LaunchRefused(
            f"podman takes no {LOCATION}registry_token.",
            hint="Write username: and password:, or identity_token: in its stead.",
            code="C104",
        )
    return login.to_engine()


class Layers:
    """Sums up the progress of an image's layers."""

    def __init__(self, reference: str, progress: LaunchProgress) -> None:
        self._reference = reference
        self._progress = progress
        self._done: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._reported_at = 0.0

    def update(self, line: Mapping[str, Any]) -> None:
        """Take a line of the engine's answer; report the sum every PROGRESS_SECONDS."""
        layer, detail = str(line.get("id") or ""), line.get("progressDetail") or {}
        if line.get("status") == "Downloading" and detail.get("total"):
            self._done[layer], self._whole[layer] = int(detail["current"]), int(detail["total"])
        elif line.get("status") in ("Download complete", "Pull complete") and layer in self._whole:
            self._done[layer] = self._whole[layer]
        if time.monotonic() - self._reported_at < PROGRESS_SECONDS:
            return
        self._reported_at = time.monotonic()
        if self._whole:
            done, whole = size(sum(self._done.values())), size(sum(self._whole.values()))
            self._progress(f"pulls {self._reference}: {done} of {whole}", stage="preparing")


def not_pulled(reference: str, error: str, request: LaunchRequest) -> FabricError:
    """Return the error for an image, or a base image, of a job that was not pulled."""
    text = error.strip().rstrip(".")
    low = text.lower()
    if any(word in low for word in ("no such host", "timeout", "connection refused", "unreachable", "i/o")):
        return RegistryUnreachable(
            f"The image {reference} cannot be pulled, since its registry cannot be reached: {text}.",
            hint="Check the network and proxies of the engine; docker load takes an image from a file.",
        )
    if any(word in low for word in ("denied", "unauthorized", "authentication", "credentials", "forbidden")):
        return LaunchRefused(
            f"The image {reference} cannot be pulled: there is none of that name, or you have no right to it.",
            hint=LOGIN_HINT
            if has_login(request)
            else "Check its name, or log in to its registry: docker login, or framework.image_location of the manifest",
            code="S103",
        )
    return LaunchRefused(
        f"The image {reference} cannot be pulled: {text}.", hint="Check its name and tag.", code="S103"
    )
