"""``fabric backend``."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from workbench.cli.framework.completion import backend_names
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json, KubeContext, Namespace
from workbench.errors import PlaceUnreachable, UsageError
from workbench.terminal.console import narrate, style

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Finding
    from backends.kubernetes.backend import KubernetesBackend

UNKNOWN: Final = "YOU"


def print_role(options: BackendOptions, user: str, *, json: bool) -> None:
    """Print Role and RoleBinding as YAML that ``kubectl apply -f -`` takes, or as one document.

    Raises:
        UsageError: the place is no cluster.
        ConfigError: there is no kubeconfig.
    """
    from backends.kubernetes.backend import KubernetesBackend
    from backends.kubernetes.rbac import binding_document, role_document, role_yaml
    from workbench.services.backends.placement import open_backend

    backend = open_backend(options)
    if not isinstance(backend, KubernetesBackend):
        raise UsageError(
            f"'{options.name}' is no cluster and needs no role", hint="such as k8s://context/namespace"
        )
    namespace = backend.access().namespace
    named = user or _asked(backend) or UNKNOWN
    if json:
        from workbench.terminal.json_output import print_document

        objects = [role_document(namespace), binding_document(namespace, named)]
        print_document({"schema": "fabric.role/1", "objects": objects})
    else:
        sys.stdout.write(role_yaml(namespace, named))
    if named == UNKNOWN:
        narrate("the cluster does not say who you are: put your name in the place of YOU, or give --user")


def _asked(backend: KubernetesBackend) -> str:
    from backends.kubernetes.probe import whoami

    with closing(backend.reach()) as cluster:
        try:
            return whoami(cluster)
        except PlaceUnreachable as error:
            narrate(f"{error}")
            return ""


Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", autocompletion=backend_names)]
Place = Annotated[
    str, typer.Argument(metavar="PLACE", help="Its name or address.", autocompletion=backend_names)
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The name that it gets.")]
Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="ssh://me@host, k8s://context/namespace, ...")
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="A setting of that place (repeatable)."),
]
AcceptKey = Annotated[
    str,
    typer.Option("--accept-key", metavar="SHA256:...", help="Accept the place if it shows this key."),
]
Cluster = Annotated[
    str,
    typer.Argument(metavar="[PLACE]", help="A cluster's name or address.", autocompletion=backend_names),
]
User = Annotated[
    str,
    typer.Option(
        "--user", metavar="NAME", help="Who gets it; system:serviceaccount:NAMESPACE:NAME is an account."
    ),
]
Untested = Annotated[bool, typer.Option("--untested", help="Add it without reaching it.")]
Purge = Annotated[bool, typer.Option("--purge", help="Also remove all that this home has there.")]
Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Names or addresses; else all.", autocompletion=backend_names),
]


@command("list", "fabric backend list", "fabric backend list --json")
def list_(json: Json = False) -> None:
    """List the places that jobs can run at."""
    from backends.registry import backend_types
    from workbench.services.backends.placement import backend_options, known_backends

    installed = set(backend_types())
    options = [backend_options(name) for name in known_backends()]
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            [
                {
                    "schema": "fabric.backend/1",
                    "name": each.name,
                    "type": each.type,
                    "address": each.address,
                    "options": dict(each.options),
                    "installed": each.type in installed,
                }
                for each in options
            ]
        )
        return
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    rows = [
        [
            each.name,
            each.type if each.type in installed else f"{each.type} (not installed)",
            each.address or "-",
        ]
        for each in options
    ]
    sys.stdout.write(
        render([Column("NAME"), Column("TYPE"), Column("ADDRESS", stretch=True)], rows, width=width())
    )


@command(
    "add",
    "fabric backend add gpubox ssh://me@gpubox",
    "fabric backend add lab ssh://lab -o python=python3.11",
    "fabric backend add cloud ssh://cloud -o on_demand.start='./start.sh' -o on_demand.stop='./stop.sh'",
)
def add(
    name: NewName,
    address: Address,
    option: Options = None,
    accept_key: AcceptKey = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    untested: Untested = False,
) -> None:
    """Give a place a name, in the user's configuration file.

    It is reached first, and what was found there is told. A key that is not known is shown and asked for.
    """
    from dataclasses import replace

    from backends.registry import backend_types
    from workbench.config import add_backend
    from workbench.errors import UnknownName, UsageError
    from workbench.services.backends.placement import backend_options

    settings: dict[str, Any] = {
        key: text for key, text in (("context", kube_context), ("namespace", namespace)) if text
    }
    for word in option or []:
        key, given, value = word.partition("=")
        if not given or not key:
            raise UsageError(f"--option {word}: a setting is KEY=VALUE")
        table, _, inner = key.partition(".")
        if inner:
            if not isinstance(settings.get(table, {}), dict):
                raise UsageError(f"--option {word}: {table} has a value of its own")
            settings.setdefault(table, {})[inner] = value
        else:
            settings[key] = value
    place = replace(backend_options(address), name=name, options=settings)
    kind = place.type
    if kind not in backend_types():
        raise UnknownName(
            f"nothing that is installed reaches '{address}'",
            hint=f"installed are {', '.join(backend_types())}",
        )
    if not untested:
        from workbench.services.backends.setup import reach

        print_findings(reach(place, accept_key))
    add_backend(name, kind, address, settings)
    narrate(f"added {name}; `fabric backend test {name}` tries it, `fabric run --backend {name}` uses it")


@command("remove", "fabric backend remove gpubox", "fabric backend remove gpubox --purge")
def remove(name: Name, purge: Purge = False) -> None:
    """Take a place's name out of the configuration file; its jobs stay as they are.

    --purge first removes all that this home has there: agents, code, environments and what jobs left. What
    came home of them stays here.
    """
    from workbench.config import remove_backend

    if purge:
        from workbench.services.backends.placement import backend_options
        from workbench.services.backends.setup import purge as leave

        leave(backend_options(name))
    remove_backend(name)
    narrate(f"removed {name}")


@command(
    "test",
    "fabric backend test local",
    "fabric backend test ssh://me@gpubox --accept-key SHA256:...",
    "fabric backend test k8s --context lab --namespace team",
    "fabric backend test --json",
)
def test(
    names: Places = None,
    accept_key: AcceptKey = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    json: Json = False,
) -> int:
    """Try places: what was found there, what is missing, and what to do about it.

    When one of them cannot be used the exit code says why: 69 not reached, 77 not let in, 78 not known.
    """
    from workbench.services.backends.placement import CLUSTER, backend_options, known_backends
    from workbench.services.backends.setup import try_place

    wanted = names or ([CLUSTER] if kube_context or namespace else known_backends())
    results = {}
    for name in wanted:
        place = backend_options(name, context=kube_context, namespace=namespace)
        results[name] = try_place(place, accept_key)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            [
                {
                    "schema": "fabric.backend-test/1",
                    "name": name,
                    "usable": tried.usable,
                    "findings": [finding_document(each) for each in tried.findings],
                }
                for name, tried in results.items()
            ]
        )
    else:
        for name, tried in results.items():
            print(f"{name}: {'usable' if tried.usable else 'cannot be used'}")
            print_findings(list(tried.findings))
    return next((tried.exit_code for tried in results.values() if tried.exit_code), 0)


@command(
    "role",
    "fabric backend role k8s | kubectl apply -f -",
    "fabric backend role k8s://lab/team --user alice > role.yml",
)
def role(
    place: Cluster = "k8s",
    user: User = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    json: Json = False,
) -> None:
    """Print the Role that jobs in a cluster's namespace need, for its administrator to give.

    The cluster is asked who you are, unless --user says it.
    """
    from workbench.services.backends.placement import backend_options

    print_role(backend_options(place, context=kube_context, namespace=namespace), user, json=json)


@command("login", "fabric backend login gpubox", "fabric backend login ssh://me@gpubox")
def login(name: Place) -> None:
    """Type what a place wants typed: a password, a key's passphrase, a code.

    It is asked for once and kept in the controller's memory alone; jobs that wait for it go on.
    """
    from workbench.controller.runtime.login_client import log_in
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import backend_options
    from workbench.services.backends.setup import Asking, type_answer
    from workbench.store.db.identity import make_home

    home = Home(default_home())
    make_home(home)
    log_in(home, backend_options(name), type_answer, Asking())
    narrate(f"{name} lets you in")


def finding_document(finding: Finding) -> dict[str, str]:
    """Return a finding as ``--json`` gives it."""
    return {
        "subject": finding.subject,
        "found": finding.found,
        "level": finding.level,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
    }


def print_findings(findings: list[Finding]) -> None:
    """Print findings one a line, each lack with what follows from it and what to do."""
    marks = {"ok": ("ok   ", "green"), "lack": ("lack ", "yellow"), "wrong": ("wrong", "red")}
    wide = max((len(each.subject) for each in findings), default=0)
    for each in findings:
        mark, colour = marks[each.level]
        print(f"  {style(mark, colour, sys.stdout)}  {each.subject:{wide}}  {each.found}")
        for word, text in (("so", each.consequence), ("do", each.remedy)):
            if text:
                print(f"  {'':5}  {'':{wide}}  {word}: {text}")


backend = Family(
    "backend",
    "List, add, remove and test the places that jobs run at, and log in there.",
    (list_, add, remove, test, login, role),
    default="list",
)
