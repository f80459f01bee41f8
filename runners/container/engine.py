"""A client of a host's container engine over the host's connection: the calls of a launch, without a library."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from backends.contract.container_engines import find_engine, no_engine, not_allowed, usual_sockets
from backends.contract.host import Host
from workbench.errors import BackendUnreachable, FabricError, NotAllowed, RunnerError
from workbench.learner.guard import container_creation
from workbench.learner.guard.container_creation import CONFLICT, LABEL_HOME, NOT_FOUND
from workbench.learner.platform.engine_client import (
    EngineRefused,
    EngineRequest,
    is_version_refused,
    version_to_speak,
)

ANSWER_SECONDS: Final = 60.0
REMOVE_SECONDS: Final = 3.0
REMOVE_TRIES: Final = 10
REMOVE_AGAIN_SECONDS: Final = 0.2
NETWORK_AGAIN_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 3.0
"""How long to wait for the engine's notice that a container was removed, before the container is inspected."""
REPAIRED: Final = 25
"""The first major version of Docker whose restart keeps running containers with AutoRemove."""


class Engine:
    """A container engine behind a unix socket of a host. Calls may be made from several threads at once."""

    def __init__(self, host: Host, path: str, *, answer_seconds: float | None = None) -> None:
        self.host = host
        self.path = path
        self._answer_seconds = answer_seconds
        self._looking = threading.Lock()
        self._info: dict[str, Any] | None = None
        self._version = ""

    def ask(self, method: str, target: str, body: Any = None, *, seconds: float | None = None) -> Any:
        """Call the engine's API and return the answer.

        Raises:
            EngineRefused: the engine answered with an error status.
            BackendUnreachable: the engine does not answer.
            NotAllowed: the user may not open its socket.
        """
        seconds = self._answer_seconds or ANSWER_SECONDS if seconds is None else seconds
        with self.answering(seconds):
            try:
                return self.begin(method, target, body, seconds=seconds).answer()
            except EngineRefused as error:
                if not is_version_refused(error):
                    raise
                self._version = ""
                return self.begin(method, target, body, seconds=seconds).answer()

    @contextlib.contextmanager
    def answering(self, seconds: float) -> Iterator[None]:
        """Raise BackendUnreachable where an engine that is there does not answer, or ends the connection."""
        try:
            yield
        except TimeoutError as error:
            raise BackendUnreachable(
                f"The container engine has not answered for {seconds:g} seconds."
            ) from error
        except OSError as error:
            why = "" if error.errno or not str(error) else f": {error}"
            raise BackendUnreachable(
                f"The container engine at {self.path} ended the connection{why}."
            ) from error

    def begin(
        self, method: str, target: str, body: Any = None, *, seconds: float | None = None
    ) -> EngineRequest:
        """Send a request without waiting for its answer."""
        seconds = ANSWER_SECONDS if seconds is None else seconds
        version = self._version_within(seconds)
        return EngineRequest(self._connect(seconds), method, target, body, version=version)

    @property
    def version(self) -> str:
        """The version of the API that requests are to name.

        Raises:
            BackendUnreachable: the engine does not answer.
            NotAllowed: the user may not open its socket.
        """
        try:
            with self.answering(ANSWER_SECONDS):
                return self._version_within(ANSWER_SECONDS)
        except EngineRefused as error:
            text = error.message or error.status
            raise BackendUnreachable(
                f"The container engine at {self.path} answers with an error: {text}."
            ) from error

    def _version_within(self, seconds: float) -> str:
        if not self._version:
            self._version = version_to_speak(lambda: self._connect(seconds))
        return self._version

    def _connect(self, seconds: float) -> socket.socket:
        try:
            stream = self.host.connect(self.path)
        except NotAllowed as error:
            raise not_allowed(self.path) from error
        except FabricError as error:
            raise no_engine(self.path) from error
        stream.settimeout(seconds)
        return stream

    def within(self, seconds: float) -> Engine:
        """Return a client of the same engine with a shorter time limit for answers."""
        hurried = Engine(self.host, self.path, answer_seconds=seconds)
        hurried._info, hurried._version = self._info, self._version
        return hurried

    @property
    def info(self) -> Mapping[str, Any]:
        """The reply to ``info``, requested once."""
        with self._looking:
            if self._info is None:
                self._info = self.ask("GET", "info")
            return self._info

    # Images

    def image(self, name: str) -> dict[str, Any] | None:
        """Return the document of a local image, None if it is missing."""
        return self._found("GET", f"images/{quote(name, safe='/:@')}/json")

    # Containers

    @property
    def is_podman(self) -> bool:
        """Whether it is podman: its Docker-compatible API cannot pass GPUs."""
        return "BuildahVersion" in self.info

    @property
    def may_remove_by_itself(self) -> bool:
        """Whether AutoRemove is safe.

        With live-restore, Docker before 25 kills containers with AutoRemove when it restarts.
        """
        version = str(self.info.get("ServerVersion") or "").partition(".")[0]
        return not self.info.get("LiveRestoreEnabled") or (version.isdigit() and int(version) >= REPAIRED)

    def create(self, name: str, body: Mapping[str, Any], slots: Sequence[str] = ()) -> bool:
        """Create a container with the GPUs that the document requests; False if one of that name exists.

        Raises:
            EngineRefused: the engine refuses the configuration.
        """
        return container_creation.create(self.ask, name, body, slots, is_podman=self._needs_podman(body))

    def ensure(self, name: str, body: Mapping[str, Any], slots: Sequence[str], home: str) -> bool:
        """Create a container of a home; one that is there is kept if it is equal or runs, else replaced.

        Returns:
            Whether the container is equal to the document.

        Raises:
            NameTaken: there is one of another home.
            EngineRefused: the engine refuses the configuration.
        """
        return container_creation.ensure(
            self.ask,
            name,
            body,
            slots,
            home=home,
            is_podman=self._needs_podman(body),
            remove=lambda: self.remove(name),
        )

    def _needs_podman(self, body: Mapping[str, Any]) -> bool:
        """Return whether it is podman, which is asked only where GPUs are requested."""
        return bool(body["HostConfig"].get("DeviceRequests")) and self.is_podman

    def inspect(self, name: str) -> dict[str, Any] | None:
        """Return the document of a container, None if it does not exist."""
        return self._found("GET", f"containers/{name}/json")

    def containers(self, *labels: str) -> list[dict[str, Any]]:
        """List the containers with all of these labels, running or not."""
        filters = quote(json.dumps({"label": list(labels)}))
        found: list[dict[str, Any]] = self.ask("GET", f"containers/json?all=1&filters={filters}")
        return found

    def remove_of(self, home: str, name: str) -> None:
        """Kill and remove the container with this name if its label names the home; else it is left alone."""
        # The list answers at once even while the container is being removed.
        if any(f"/{name}" in one["Names"] for one in self.containers(f"{LABEL_HOME}={home}")):
            self.remove(name)

    def remove(self, name: str) -> None:
        """Kill and remove a container and wait until it is removed; a missing one is not an error."""
        for _ in range(REMOVE_TRIES):
            try:
                self.ask("DELETE", f"containers/{name}?force=1&v=1")
                return
            except EngineRefused as error:
                if error.status == NOT_FOUND:
                    return
                if error.status != CONFLICT:
                    raise RunnerError(f"The container {name} cannot be removed: {error.message}.") from error
            # The engine is removing it already. Docker answers in the same way where that failed, and keeps it as dead.
            if self.is_removed(name, REMOVE_SECONDS) and self.inspect(name) is None:
                return
            time.sleep(REMOVE_AGAIN_SECONDS)
        raise RunnerError(f"The container {name} cannot be removed.", hint=f"docker rm -f {name}")

    def is_removed(self, name: str, seconds: float = ANSWER_SECONDS) -> bool:
        """Wait until a container is removed, or the engine could not remove it; False after the timeout."""
        until = time.monotonic() + seconds
        while True:
            # An engine may never answer a wait that arrives at the moment of the removal: it is repeated.
            slice_seconds = max(0.1, min(LOOK_SECONDS, until - time.monotonic()))
            try:
                self.begin(
                    "POST", f"containers/{name}/wait?condition=removed", seconds=slice_seconds
                ).answer()
            except EngineRefused as error:
                return error.status == NOT_FOUND
            except OSError:
                if self.inspect(name) is None:
                    return True
                if time.monotonic() >= until:
                    return False
            else:
                return True

    # Networks

    def networks(self, label: str) -> list[dict[str, Any]]:
        """List the networks with a label."""
        filters = quote(json.dumps({"label": [label]}))
        found: list[dict[str, Any]] = self.ask("GET", f"networks?filters={filters}")
        return found

    def create_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a network unless it exists.

        Raises:
            EngineRefused: the engine has no addresses left, or refuses the network.
        """
        container_creation.create_network(self.ask, name, labels)

    def remove_network(self, home: str, name: str, *, seconds: float = 0.0) -> bool:
        """Remove a network if its label names the home; False if the engine keeps it for so many seconds.

        It does while containers use it, and where it fails itself, as in a moment in which another program changes the
        firewall. A missing network, or one of another home, is not an error.
        """
        deadline = time.monotonic() + seconds
        while True:
            # By their ids: an engine may have two of one name, and then takes that for neither.
            ids = [one["Id"] for one in self.networks(f"{LABEL_HOME}={home}") if one["Name"] == name]
            kept = [each for each in ids if not container_creation.remove_network(self.ask, each)]
            if not kept:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(NETWORK_AGAIN_SECONDS)

    def _found(self, method: str, target: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.ask(method, target)
            return found
        except EngineRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise RunnerError(f"The container engine says: {error.message}") from error


def engine_at(host: Host, environment: Mapping[str, str]) -> Engine:
    """Return the engine of a host: the one of the backend's options, else the user's default engine.

    Raises:
        ConfigError: it is on another machine.
    """
    if address := getattr(host, "engine", ""):
        return Engine(host, str(address).removeprefix("unix://"))
    if host.here:
        return Engine(host, find_engine().path)
    candidates: Sequence[str] = list(usual_sockets(environment.get("XDG_RUNTIME_DIR", "")))
    found = host.call("existing", paths=candidates)
    return Engine(host, next(iter(found), candidates[0]))
