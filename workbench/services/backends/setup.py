"""Sets up a backend: its settings, the login, the role that a cluster's jobs need, and what to remove in the end.

It has a host be empty soon, too, as the host's operators may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from workbench.clock import now_us
from workbench.errors import BackendUnreachable, ConfigError, NotAllowed, TryAgain, UnknownName, UsageError
from workbench.formats import clock_time, iso
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import Ask, BackendOptions, Host
    from backends.contract.prompts import Prompter
    from backends.kubernetes.backend import KubernetesBackend
    from workbench.documents.machines import DrainDocument, EndedJobDocument, RoleDocument
    from workbench.paths import Home

UNKNOWN_USER: Final = "YOU"
"""Stands for a user whose name the cluster does not tell."""

DrainAct = Literal["begin", "end", "look"]


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """The Role and RoleBinding that jobs in a cluster's namespace need."""

    namespace: str
    user: str
    """:data:`UNKNOWN_USER` where neither the caller nor the cluster named one."""
    error: BackendUnreachable | None = None
    """Why the cluster could not be asked for the user's name."""

    def document(self) -> RoleDocument:
        """Return both objects as ``--json`` gives them, schema ``fabric.role/1``."""
        from backends.kubernetes.rbac import binding_document, role_document

        objects = [role_document(self.namespace), binding_document(self.namespace, self.user)]
        return {"schema": "fabric.role/1", "objects": objects}

    def yaml(self) -> str:
        """Return both objects as ``kubectl apply -f -`` takes them."""
        from backends.kubernetes.rbac import role_yaml

        return role_yaml(self.namespace, self.user)


@dataclass(frozen=True, slots=True)
class HostDrain:
    """Who wants a host to be empty, and whether this user may."""

    by: str
    """An operator, or root's file; empty where nobody does."""
    since_us: int | None
    """Since when, by this machine's clock."""
    may: bool
    """Whether this user is an operator there."""
    unknown: tuple[str, ...] = ()
    """Those whom its policy names as operators and the host does not know."""
    trouble: str = ""
    """Why its policy is not used: it names no operators then."""

    def document(self, name: str) -> DrainDocument:
        """Return it as ``--json`` gives it, schema ``fabric.drain/1``; ``name`` is the backend's."""
        return {
            "schema": "fabric.drain/1",
            "name": name,
            "drained": bool(self.by),
            "by": self.by or None,
            "since": None if self.since_us is None else iso(self.since_us),
            "may": self.may,
            "unknown_operators": list(self.unknown),
            "trouble": self.trouble,
        }

    def sentence(self, name: str) -> str:
        """Say who drains the backend with this name, and since when."""
        if self.since_us is None:
            return f"nobody drains {name}"
        return f"{name} is drained by {self.by} since {clock_time(self.since_us, now_us=now_us())}"

    def remarks(self) -> list[str]:
        """Say what is wrong with what root wrote."""
        found = [f"its policy is not used: {self.trouble}"] if self.trouble else []
        if self.unknown:
            found.append(f"its policy names operators that it does not know: {', '.join(self.unknown)}")
        return found


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The job of a person that an operator of its host has ended."""

    job: str
    attempt: int
    person: str

    def document(self, name: str) -> EndedJobDocument:
        """Return it as ``--json`` gives it, schema ``fabric.ended-job/1``; ``name`` is the backend's."""
        return {
            "schema": "fabric.ended-job/1",
            "name": name,
            "job": self.job,
            "attempt": self.attempt,
            "person": self.person,
        }


def parse_settings(texts: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``--option KEY=VALUE`` over given ones; ``TABLE.KEY=VALUE`` sets a key of a table.

    Raises:
        UsageError: a text is not of that form.
    """
    settings = {key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--option {text}: a setting is KEY=VALUE")
        table, _, inner = key.partition(".")
        if not inner:
            settings[key] = value
        elif not isinstance(settings.get(table, {}), dict):
            raise UsageError(f"--option {text}: {table} has a value of its own")
        else:
            settings.setdefault(table, {})[inner] = value
    return settings


def new_backend(name: str, address: str, settings: Mapping[str, Any]) -> BackendOptions:
    """Return the options of a backend that is not configured yet.

    Raises:
        UnknownName: nothing that is installed reaches that kind of address.
    """
    from backends.registry import backend_types
    from workbench.services.backends.placement import backend_options, refuse_several

    address_options = backend_options(address)
    refuse_several(address_options)
    options = replace(address_options, name=name, options=settings)
    if options.type not in backend_types():
        raise UnknownName(
            f"nothing that is installed reaches '{address}'",
            hint=f"installed are {', '.join(backend_types())}",
        )
    return options


def log_in(home: Home, options: BackendOptions, answer: Prompter, accept: Ask) -> None:
    """Log in to a backend; the controller keeps what was typed in its memory.

    Args:
        home: whose controller; it is made where it is not there.
        options: the backend.
        answer: asks for a password or a code; None gives up.
        accept: asks whether an unknown host key is accepted.

    Raises:
        NotAllowed: the backend refuses the login.
        BackendUnreachable: it does not answer.
    """
    from backends.contract.host_group import member_options
    from workbench.controller.client import login as login_client
    from workbench.store.db.identity import make_home

    make_home(home)
    for member in member_options(options):
        login_client.log_in(home, member, answer, accept)


def role(options: BackendOptions, user: str = "") -> RoleGrant:
    """Return the role that jobs in a cluster's namespace need, for a user or for whoever asks.

    Raises:
        UsageError: the backend is not a cluster.
        ConfigError: there is no kubeconfig.
    """
    from backends.kubernetes.backend import KubernetesBackend
    from workbench.services.backends.placement import open_backend

    backend = open_backend(options)
    if not isinstance(backend, KubernetesBackend):
        raise UsageError(
            f"'{options.name}' is not a cluster and needs no role", hint="such as k8s://context/namespace"
        )
    namespace = backend.access().namespace
    if user:
        return RoleGrant(namespace, user)
    try:
        return RoleGrant(namespace, _user_of(backend) or UNKNOWN_USER)
    except BackendUnreachable as error:
        return RoleGrant(namespace, UNKNOWN_USER, error)


def _user_of(backend: KubernetesBackend) -> str:
    from backends.kubernetes.probe import whoami

    with closing(backend.reach()) as cluster:
        return whoami(cluster)


def purge(options: BackendOptions) -> None:
    """Remove all that this home keeps at a backend; files that were downloaded stay.

    Raises:
        HomeNotBound: this home is a copy of the one that has it.
        TryAgain: jobs of this home run there, or have files there that they need.
        ConfigError: the backend is this machine.
    """
    from backends.contract.host import Host
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import open_backend, refuse_several
    from workbench.store.db.database import home_uuid
    from workbench.store.db.home_folder import require_home

    refuse_several(options)
    require_home(Home(default_home()))
    if options.type == "local":
        raise ConfigError("this machine keeps the home itself, which is not removed", hint="see fabric gc")
    backend = open_backend(options)
    if backend.opens == "host" and (needing := _open_at(options)):
        have = "has" if len(needing) == 1 else "have"
        raise TryAgain(
            f"{options.name} has files of {', '.join(needing)}, which {have} not ended",
            hint="halt or kill them first, or leave --purge out",
        )
    with closing(backend.open()) as opened:
        if isinstance(opened, Host):
            _purge(opened, home_uuid(Home(default_home())), options.name)


def _open_at(options: BackendOptions) -> list[str]:
    """Return the open jobs of this home that have this host, alone or with others; some may run nowhere now."""
    from backends.contract.host import BackendOptions
    from backends.contract.host_group import member_options
    from workbench.config import host_of
    from workbench.paths import Home, default_home
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import open_jobs

    def hosts_of(one: BackendOptions) -> set[tuple[str, str, int]]:
        return {host_of(each.type, each.address or each.name) for each in member_options(one)}

    with Store.open(Home(default_home())) as store:
        targets = {str(row.id): row.target for row in open_jobs(store)}
    here = hosts_of(options)
    return sorted(
        job
        for job, each in targets.items()
        if here & hosts_of(BackendOptions(each.backend, each.type, each.address, each.options))
    )


def _purge(host: Host, uuid: str, name: str) -> None:
    from pathlib import PurePosixPath

    from workbench.services.backends.linger import remove_unit

    running = sorted({text.split("/")[1] for text in host.call("markers") if text.startswith(f"{uuid}/")})
    if running:
        raise TryAgain(
            f"{name} still runs {', '.join(running)}",
            hint="halt or kill what runs there, or leave --purge out",
        )
    remove_unit(host, uuid)
    folder = PurePosixPath(host.folder(uuid))
    secrets = host.call("secret_folder")
    host.call("remove", paths=[str(folder)])
    # Only where they are empty: another home or machine of the same user may keep files there.
    for empty in (folder.parent, folder.parent.parent, PurePosixPath(secrets)):
        host.run(["rmdir", str(empty)])


def end_job(options: BackendOptions, job: str) -> EndedJob:
    """Have a job end that holds GPUs at a host, of whomever, as an operator of that host.

    Raises:
        UsageError: it is a cluster.
        NotAllowed: this user is not an operator there.
        InputMissing: no such job holds a GPU there.
        BackendError: it has no Python.
    """
    with closing(_opened_host(options, "kubectl delete pod")) as host:
        return EndedJob(**host.call("end_job", job=job))


def drain_host(options: BackendOptions, act: DrainAct) -> HostDrain:
    """Have a host be empty (``begin``), take that back (``end``), or only look; return how it is then.

    Raises:
        UsageError: it is a cluster.
        NotAllowed: this user is no operator there, or somebody else still wants it to be empty.
        BackendError: it has no Python.
    """
    with closing(_opened_host(options, "kubectl drain NODE")) as host:
        found = host.call("drain", act=act)
        since_us = found["since_us"]
        drain = HostDrain(
            found["by"],
            None if since_us is None else since_us - host.clock_ahead_us(),
            found["may"],
            tuple(found["unknown"]),
            found["trouble"],
        )
    if act == "end" and drain.by:
        raise NotAllowed(f"{drain.sentence(options.name)}, which only {_who_ends(drain.by)} can take back.")
    return drain


def _who_ends(by: str) -> str:
    return "root" if by.startswith("/") else f"{by}, or root,"


def _opened_host(options: BackendOptions, otherwise: str) -> Host:
    from backends.contract.host import Host
    from workbench.services.backends.placement import open_backend, refuse_several

    refuse_several(options)
    opened = None if options.type == "kubernetes" else open_backend(options).open()
    if isinstance(opened, Host):
        return opened
    if opened is not None:
        opened.close()
    raise UsageError(
        f"{options.name} is a cluster, whose operators have its own means", hint=f"such as {otherwise}"
    )
