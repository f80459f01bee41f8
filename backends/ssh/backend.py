"""The backend ``ssh``: a host that ``~/.ssh/config`` describes; nothing has to be installed there."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from backends.contract.host import (
    INTERNAL_ADDRESS,
    SHARE_NAMES,
    Ask,
    Backend,
    BackendOptions,
    Cluster,
    Finding,
    Host,
    Inventory,
    check_address,
    check_flag,
    is_set,
)
from backends.contract.on_demand import read_demand
from backends.contract.prompts import CREDENTIALS
from backends.ssh.config import SshConfig, parse_address
from backends.ssh.shared_sessions import SESSION_SHARING
from workbench.errors import BackendUnreachable, ConfigError, FabricError, NeedsLogin, UsageError
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from backends.contract.host import HostGroup
    from backends.ssh.bootstrap import AgentLocation, AgentRequest
    from backends.ssh.connection import Pipe, SshConnection
    from backends.ssh.host_cache import HostCache, HostReport

OPTIONS: Final = {
    "transport": "paramiko (the default) or openssh, which runs the system's ssh",
    "python": "which Python 3.8 or newer to use there",
    "setup": "commands there whose changes of the environment hold for every job: module load cuda",
    "on_demand": "commands here that start and stop the machine: {start, stop, idle_minutes}",
    "root": "a folder there instead of ~/.fabric",
    "config": "an SSH configuration file instead of ~/.ssh/config",
    "agent": "the socket of the SSH agent",
    "engine": "the socket of the container engine there",
    "silent_seconds": "how long it may say nothing before the connection counts as lost",
    "keep_code_days": "how long code stays there that no job uses",
    "secrets_at_host": "whether secrets of a job that waits there may lie on its disk: true or false (the default)",
    "internal_address": "the address by which other hosts reach it that run a job together with it",
    "share_names": "whether others there may read the names of jobs: true or false (the default)",
    "of_home": "the uuid of the home that jobs are of; set by fabric adopt",
    "watched": "whether adopted jobs are only looked at; set by fabric adopt",
    "home": "the home that jobs are of, instead of the environment's",
}
TRANSPORTS: Final = ("paramiko", "openssh")

_awaiting: dict[str, int] = {}
"""Hosts that need a person to log in, with the generation of the credentials that were tried last."""


class SshBackend(Backend):
    """A host that is reached over SSH, by its name in ``~/.ssh/config`` or by its address."""

    type: ClassVar[str] = "ssh"

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self._address = parse_address(options.address or options.name)
        for key in options.options:
            if key not in OPTIONS:
                known = "; ".join(f"{name}: {what}" for name, what in OPTIONS.items())
                raise ConfigError(
                    f"the backend {options.name} has no setting {key!r}", hint=f"there are {known}"
                )
        read_demand(options.options.get("on_demand"))
        for key, unit in (("silent_seconds", "seconds"), ("keep_code_days", "days")):
            if not _is_number(self._option(key, "1")):
                raise ConfigError(f"{key} of {options.name} must be a number of {unit} above 0")
        for name in ("secrets_at_host", SHARE_NAMES):
            check_flag(options, name)
        check_address(options)
        if self._option("transport", TRANSPORTS[0]) not in TRANSPORTS:
            raise ConfigError(
                f"the backend {options.name} knows no transport {self._option('transport')!r}",
                hint="transport is paramiko or openssh",
            )

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options that a job keeps, with settings of this shell that the controller may not have."""
        options = dict(self.options.options)
        if socket := os.environ.get("SSH_AUTH_SOCK"):
            options.setdefault("agent", socket)
        if runner == "container":
            options.setdefault("engine", self._host_facts().engine)
        return dataclasses.replace(self.options, options=options)

    def open(self) -> Host:
        """Reach the host.

        Raises:
            BackendUnreachable: the host does not answer.
            ConfigError: the host's key is not known.
            NotAllowed: the login fails, or the host's key has changed.
        """
        return self._open()

    def introduce(self, ask: Ask) -> None:
        """Log in once, so that keys that are not known are asked for; ``ssh`` itself asks nobody."""
        if self._option("transport") != "openssh" and not SESSION_SHARING.is_connected(self.options):
            self._connect(ask).close()

    def probe(self) -> Iterator[Finding]:
        """Report what the host has; for each problem its consequence and remedy."""
        from backends.ssh.host_cache import probe_host
        from backends.ssh.probe import findings

        with closing(self.open()) as host:
            report = probe_host(host, self._engine_socket())
        yield from findings(report, self._cache_report(report))

    def inventory(self) -> Inventory:
        """Say what the host has and who uses it."""
        with closing(self.open()) as host:
            return inventory_of(host)

    def inventory_of(self, opened: Host | Cluster | HostGroup) -> Inventory:
        """Say what the host has, over the connection that is open."""
        assert isinstance(opened, Host)
        return inventory_of(opened)

    def runners(self) -> Sequence[str]:
        """Name the runners that can work there; a host that was never reached is reached for it.

        So an address that leads nowhere is refused when a job is given, and one that is merely away is not.
        """
        try:
            host_cache = self._host_facts()
        except BackendUnreachable:
            if not self.options.options.get("on_demand"):
                raise
            return ("process",)  # what else it can do is found out once it was started
        return ("process", "container") if host_cache.why_no_containers() else ("container", "process")

    def why_not(self, runner: str) -> FabricError | None:
        """Say what keeps a runner from working there; what was lacking is looked for again."""
        if runner != "container":
            return None
        try:
            if self._host_facts().why_no_containers() is None:
                return None
        except BackendUnreachable:
            if not self.options.options.get("on_demand"):
                raise
            return UsageError(
                f"what {self.name} can do besides processes is known once it was started",
                hint="--runner process starts it",
            )
        try:
            return self._probe_host().why_no_containers()
        except FabricError:
            return self._host_facts().why_no_containers()

    def session_options(self) -> BackendOptions | None:
        """Return the options by which jobs reach the host; None with ``openssh``, which manages its connections."""
        return None if self._option("transport") == "openssh" else self.frozen("process")

    def discover(self, opened: Host | Cluster | HostGroup) -> None:
        """Cache what the host has, for jobs that are submitted while nobody can log in."""
        assert isinstance(opened, Host)
        self._probe_opened(opened)

    def why_not_gpus(self, count: int) -> FabricError | None:
        """Say why a job can never be given so many GPUs there; what was lacking is looked for again."""
        host_cache = self._facts_of_gpus(count)
        # A host that cannot be reached is started on demand, and the job waits for it.
        return host_cache.why_not_gpus(count) if host_cache else None

    def gpu_count(self) -> int | None:
        """Return how many GPUs the host has; where none was seen, it is looked for again."""
        try:
            host_cache = self._facts_of_gpus(1)
        except FabricError:
            return None
        return host_cache.gpus if host_cache else None

    def _facts_of_gpus(self, count: int) -> HostCache | None:
        try:
            host_cache = self._host_facts()
        except BackendUnreachable:
            return None
        if host_cache.gpus is None or count > host_cache.gpus:
            with contextlib.suppress(FabricError):
                host_cache = self._probe_host()
        return host_cache

    def _host_facts(self) -> HostCache:
        from backends.ssh.host_cache import read_cached

        return read_cached(self._home(), self._key()) or self._probe_host()

    def _probe_host(self) -> HostCache:
        with closing(self.open()) as host:
            return self._probe_opened(host)

    def _probe_opened(self, host: Host) -> HostCache:
        from backends.ssh.host_cache import probe_host

        return self._cache_report(probe_host(host, self._engine_socket()))

    def _cache_report(self, report: HostReport) -> HostCache:
        from backends.ssh.host_cache import summarize, write_cached

        host_cache = summarize(report, self.name)
        write_cached(self._home(), self._key(), host_cache)
        return host_cache

    def _open(self) -> Host:
        from backends.ssh.bootstrap import cache_location, cached_location, forget_location

        home, key = self._home(), self._key()
        location = cached_location(home, key)
        try:
            host, found = self._open_by(location)
        except BackendUnreachable:
            # Whatever it was: an interpreter that does not start any more would fail like that, too.
            forget_location(home, key)
            raise
        if found:
            cache_location(home, key, found, self._agent_request().home_uuid)
        return host

    def _open_by(self, location: AgentLocation | None) -> tuple[Host, Mapping[str, Any]]:
        """Connect and start the agent; return the host with what the bootstrap reported."""
        from backends.ssh.bootstrap import NoPython, start_agent
        from backends.ssh.host import KEEP_CODE_DAYS, SshHost

        pipe, connection = self._reach(request := self._agent_request(), location)
        name = self._address.host if connection is None else connection.name
        try:
            found = start_agent(pipe, request, name)
        except NoPython:
            from backends.ssh.sh_control import SHELL
            from backends.ssh.sh_host import ShellHost

            another = partial(self._one_more, SHELL, connection)
            return ShellHost(pipe, request.root, connection, another=another), {}
        except BaseException:
            pipe.close()
            with contextlib.suppress(OSError, ValueError):
                pipe.reader.close()
            if connection is not None:
                connection.close()
            raise
        silent_seconds, engine = self._silent_seconds(), self._option("engine")
        host = SshHost(
            pipe,
            request,
            connection,
            silent_seconds=silent_seconds,
            engine=engine,
            name=self.name,
            keep_code_days=float(self._option("keep_code_days", str(KEEP_CODE_DAYS))),
            secrets_at_host=is_set(self.options.options, "secrets_at_host"),
            share_names=is_set(self.options.options, SHARE_NAMES),
        )
        host.internal_address = self._option(INTERNAL_ADDRESS)
        host.reached_at = self._address.host if connection is None else connection.reached_at
        return host, found

    def _agent_request(self) -> AgentRequest:
        from backends.ssh.bootstrap import AgentRequest
        from workbench.learner.boot.archive import build
        from workbench.store.db.identity import home_uuid

        home = self._home()
        return AgentRequest(
            agent=Path(build(str(home.agents))),
            home_uuid=self._option("of_home") or home_uuid(home),
            root=self._option("root"),
            python=self._option("python"),
            setup=self._option("setup"),
        )

    def _one_more(self, command: str, connection: SshConnection | None) -> Pipe:
        """Run one more command where :meth:`_reach` has run one.

        Raises:
            BackendUnreachable: the host gives no session.
        """
        from backends.ssh.connection import session_on

        if self._option("transport") == "openssh":
            from backends.ssh.openssh import OpenSshPipe

            return OpenSshPipe(self._address, command, config=self._config_file())
        if connection is None and (shared := SESSION_SHARING.session(self.options, command)) is not None:
            return shared
        return session_on(connection, command)

    def _reach(
        self, request: AgentRequest, location: AgentLocation | None
    ) -> tuple[Pipe, SshConnection | None]:
        from backends.ssh.bootstrap import command_of

        command = command_of(request, location)
        if self._option("transport") == "openssh":
            from backends.ssh.openssh import OpenSshPipe

            return OpenSshPipe(self._address, command, config=self._config_file()), None
        if (shared := SESSION_SHARING.session(self.options, command)) is not None:
            return shared, None
        connection = self._connect()
        try:
            return connection.run(command), connection
        except BaseException:
            connection.close()
            raise

    def _engine_socket(self) -> str:
        return self._option("engine").removeprefix("unix://")

    def _silent_seconds(self) -> float:
        from backends.rpc.heartbeat import SILENT_SECONDS

        return float(self._option("silent_seconds", str(SILENT_SECONDS)))

    def _home(self) -> Home:
        folder = self._option("home")
        return Home(Path(folder) if folder else default_home())

    def _key(self) -> str:
        from backends.ssh.host_cache import key_of

        return key_of(self.options.address or self.options.name, self.options.options)

    def _connect(self, ask: Ask | None = None) -> SshConnection:
        from backends.ssh.connection import SshConnection

        route = SshConfig(self._config_file()).route(self._address)
        agent = self._option("agent", os.environ.get("SSH_AUTH_SOCK", ""))
        connection = SshConnection(route, agent, ask)
        login = self._key()
        # Taken before the try: what is typed while it goes on may be tried at once.
        generation = CREDENTIALS.generation
        if _awaiting.get(login) == generation and not CREDENTIALS.can_prompt:
            # A host may ban a client that tries to log in every few seconds without credentials.
            raise self._needs_login("")
        try:
            connection.open()
        except NeedsLogin as error:
            _awaiting[login] = generation
            raise self._needs_login(error.message, error.hint) from error
        return connection

    def _needs_login(self, why: str, hint: str = "") -> NeedsLogin:
        text = f"needs login: `fabric backend login {self.name}`"
        return NeedsLogin(f"{text}; {why}" if why else text, hint=hint)

    def _config_file(self) -> Path | None:
        file = self._option("config")
        return Path(file).expanduser() if file else None

    def _option(self, name: str, default: str = "") -> str:
        return str(self.options.options.get(name, default))


def inventory_of(host: Host) -> Inventory:
    """Ask an open host what it has."""
    from backends.ssh.host_cache import node_of

    found = host.call("inventory")
    return Inventory((node_of(found),), found["time_us"])


def _is_number(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
