"""``requirements:`` in a container: an environment made once by the image's own Python, cached, and mounted."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.host import Host
from runners.container.engine import Engine
from runners.container.environment import AGENT, ENVIRONMENT, OURS
from runners.container.permissions import is_guarded, relabelled, runs_rootless, user_of
from runners.container.plan import bind
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.agents import Agent
from runners.shared.container_defaults import image_of
from runners.shared.host_facts import HostFacts
from runners.shared.virtualenvs import lock_of, refused, tail
from workbench.errors import LaunchRefused, RunnerError
from workbench.learner.guard.container_command import start_failure
from workbench.learner.guard.container_creation import NOT_FOUND
from workbench.learner.host.machine import INSTALLERS
from workbench.learner.platform.engine_client import EngineRefused
from workbench.values import dataclass

FORMAT: Final = 1
PROGRESS_SECONDS: Final = 2.0
LOCK_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05

_CERTIFICATES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
_FILES: Final = ("PIP_CERT", "PIP_CLIENT_CERT", *_CERTIFICATES)
"""Variables that name a file or folder of the host: it is mounted, and they name the mount."""

_SCRIPT: Final = f"""
exec >>{OURS}/build.log 2>&1
for python in python3 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
        exec "$python" -m workbench.learner.host.virtualenv_in_container {ENVIRONMENT} {OURS}/requirements.txt {OURS}/$1
    fi
done
for python in python3 python; do
    command -v "$python" >/dev/null 2>&1 && "$python" --version >{ENVIRONMENT}/.python 2>&1 && exit 3
done
echo nothing >{ENVIRONMENT}/.python
exit 3
"""
"""A shell script: runs the build with a recent Python of the image, else records which version it has."""

_WHEEL: Final = (
    "import glob, os\n"
    "try: import ensurepip; folders = [os.path.dirname(ensurepip.__file__) + '/_bundled']\n"
    "except ImportError: folders = []\n"
    "found = [f for d in folders + ['/usr/share/python-wheels'] for f in glob.glob(d + '/pip-*.whl')]\n"
    "print(found[0] if found else '')"
)


@dataclass(frozen=True, slots=True)
class ImageEnvironment:
    """The environment of requirements in an image, which may not exist yet."""

    key: str
    folder: str

    @property
    def mount(self) -> dict[str, Any]:
        """Its mount in a job's container."""
        return bind(self.folder, ENVIRONMENT, read_only=True)


def environment_in(request: LaunchRequest, image: Mapping[str, Any], site: HostFacts) -> ImageEnvironment:
    """Return the environment for a job's requirements in an image; its key is a hash of both."""
    lines = sorted({line.strip() for line in request.spec.requirements if line.strip()})
    document = json.dumps(["image", FORMAT, image.get("Id"), lines])
    key = hashlib.sha256(document.encode()).hexdigest()
    return ImageEnvironment(key, str(site.home.environments / key))


class EnvironmentBuild:
    """Builds an environment in a container unless it exists, or waits for a running build."""

    def __init__(
        self, request: LaunchRequest, image: Mapping[str, Any], engine: Engine, site: HostFacts, agent: Agent
    ) -> None:
        self._request = request
        self._image = image
        self._engine = engine
        self._host: Host = engine.host
        self._site = site
        self._agent = agent
        self.environment = environment_in(request, image, site)
        # The name lets other launches find a running build, which outlives the launch that started it.
        self._name = f"fabric-environment-{self.environment.key[:24]}-{request.attempt.home[:8]}"

    def build(self, progress: LaunchProgress) -> list[str]:
        """Build it and return its packages.

        Raises:
            LaunchRefused: it cannot be built (C205); the hint has the last lines of the build's output.
            RunnerError: the lock was not free in time.
        """
        folder = self.environment.folder
        if not self._has(".complete"):
            self._begin()
            self._wait(progress)
            if self._has(".python"):
                raise self._too_old()
            if not self._has(".complete"):
                what = "could not be built" if self._has(".failed") else "is not there: its build was killed"
                log = "\n".join(tail(self._host, f"{folder}.log"))
                raise refused(f"The environment of requirements: {what}", log)
        packages = self._host.run(["cat", f"{folder}/packages.txt"]).stdout
        return packages.decode("utf-8", "replace").splitlines()

    def _has(self, name: str) -> bool:
        return bool(self._host.call("existing", paths=[f"{self.environment.folder}/{name}"]))

    def _begin(self) -> None:
        """Start the build unless it runs; files of an earlier build are removed."""
        until = time.monotonic() + LOCK_SECONDS
        while (lock := lock_of(self.environment.key, self._site, self._host)) is None:
            if time.monotonic() > until:
                raise RunnerError("Somebody else holds the lock of the environment of requirements.")
            self._host.watch([f"{self.environment.folder}.lock"], timeout_seconds=_LOOK_SECONDS)
        try:
            if self._has(".complete") or self._engine.inspect(self._name) is not None:
                return
            self._prepare()
            self._start()
        finally:
            lock.release()

    def _prepare(self) -> None:
        folder = self.environment.folder
        lines = "".join(f"{line}\n" for line in self._request.spec.requirements)
        self._host.call("remove", paths=[folder])
        self._host.call("make_folders", paths=[folder])
        self._host.call("write_files", files={f"{folder}.txt": lines, f"{folder}.log": ""})

    def _start(self) -> None:
        try:
            self._engine.create(self._name, self._document())
            self._engine.ask("POST", f"containers/{self._name}/start")
        except EngineRefused as error:
            self._engine.remove(self._name)
            text, code, hint = start_failure(error, {"image": image_of(self._request)})
            raise LaunchRefused(f"{text[0].upper()}{text[1:]}.", hint=hint, code=code) from error

    def _wait(self, progress: LaunchProgress) -> None:
        """Report the build's output until its container is removed."""
        line = "builds the environment of requirements"
        while True:
            progress(line, stage="preparing")
            try:
                if self._engine.is_removed(self._name, PROGRESS_SECONDS):
                    return
            except EngineRefused as error:
                if error.status == NOT_FOUND:
                    return
                raise
            lines = tail(self._host, f"{self.environment.folder}.log")
            line = lines[-1] if lines else line

    def _too_old(self) -> LaunchRefused:
        found = self._host.run(["cat", f"{self.environment.folder}/.python"]).stdout.decode().strip()
        has = "has no Python" if found == "nothing" else f"has {found}"
        return LaunchRefused(
            f"The image {image_of(self._request)} {has}, and requirements need Python 3.8 or newer.",
            hint="Install them by setup: with what the image has, or take another image.",
            code="C205",
        )

    def _document(self) -> dict[str, Any]:
        """Return the configuration of the build's container: it can write only the environment and the log."""
        folder, wheel = self.environment.folder, self._wheel()
        mounts = [
            bind(folder, ENVIRONMENT),
            bind(f"{folder}.log", f"{OURS}/build.log"),
            bind(f"{folder}.txt", f"{OURS}/requirements.txt", read_only=True),
            bind(self._agent.importable, AGENT, read_only=True),
        ]
        wheel_name = wheel.rpartition("/")[2]
        if wheel:
            mounts.append(bind(wheel, f"{OURS}/{wheel_name}", read_only=True))
        host_variables = self._site.environment
        variables = {"HOME": "/tmp", "PYTHONPATH": AGENT, "PYTHONDONTWRITEBYTECODE": "1"}
        variables |= {name: value for name, value in host_variables.items() if name.startswith(INSTALLERS)}
        variables |= {
            name: value for name, value in host_variables.items() if name.lower().endswith("_proxy")
        }
        variables |= self._certificates()
        given = [name for name in _FILES if variables.get(name)]
        there = set(self._host.call("existing", paths=sorted({variables[name] for name in given})))
        for name in given:
            if variables[name] in there:
                mounts.append(bind(variables[name], f"{OURS}/{name.lower()}", read_only=True))
                variables[name] = f"{OURS}/{name.lower()}"
        if configuration := variables.get("PIP_CONFIG_FILE") or self._configuration():
            mounts.append(bind(configuration, f"{OURS}/pip.conf", read_only=True))
            variables["PIP_CONFIG_FILE"] = f"{OURS}/pip.conf"
        host: dict[str, Any] = {
            "AutoRemove": True,
            "NetworkMode": "host",  # so that an index or a proxy on the loopback address works
            "SecurityOpt": ["no-new-privileges"],
            "CapDrop": ["ALL"],
            "LogConfig": {"Type": "none", "Config": {}},
            "Mounts": mounts,
        }
        if is_guarded(self._host, self._engine):
            host["Binds"] = relabelled(host.pop("Mounts"))
        uid, gid = user_of(self._host)
        return {
            "Image": self._image["Id"],
            "User": "0:0" if runs_rootless(self._engine) else f"{uid}:{gid}",
            "Entrypoint": ["sh", "-c", _SCRIPT, "sh", wheel_name or "-"],
            "Cmd": [],
            "WorkingDir": "/",
            "Env": [f"{name}={value}" for name, value in sorted(variables.items())],
            "Labels": {"fabric.home": self._request.attempt.home, "fabric.environment": self.environment.key},
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": host,
        }

    def _certificates(self) -> dict[str, str]:
        """Return variables for certificates of proxies and indexes, of the environment and pip's configuration."""
        submitted = self._request.recorded.get("environment") or {}
        known = {**submitted, **self._site.environment} if self._site.here else self._site.environment
        found = {name: str(known[name]) for name in _CERTIFICATES if known.get(name)}
        configuration = self._site.environment.get("PIP_CONFIG_FILE") or self._configuration()
        text = (
            self._host.run(["cat", configuration]).stdout.decode("utf-8", "replace") if configuration else ""
        )
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(configparser.Error):  # pip reports it
            parser.read_string(text)
        for option in ("cert", "client-cert"):
            for section in ("global", "install"):
                if parser.has_option(section, option):
                    found["PIP_" + option.replace("-", "_").upper()] = parser.get(section, option)
        named = {name: value for name, value in self._site.environment.items() if name in _FILES}
        return {**found, **named}

    def _configuration(self) -> str:
        """Return the first existing configuration file of pip on the host, or an empty path."""
        home = self._site.environment.get("HOME", "")
        usual = [f"{home}/.config/pip/pip.conf", f"{home}/.pip/pip.conf", "/etc/pip.conf"]
        return next(iter(self._host.call("existing", paths=usual)), "")

    def _wheel(self) -> str:
        """Return the path of pip's wheel on the host, or an empty path."""
        done = self._host.run([self._site.python, "-I", "-c", _WHEEL])
        return done.stdout.decode().strip() if done.exit_code == 0 else ""
