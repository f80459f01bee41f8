"""``fabric backend``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import backend_names
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json, KubeContext, Namespace
from workbench.errors import UsageError
from workbench.terminal.console import narrate, style, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.contract.host import Finding
    from workbench.documents.machines import FindingEntry

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", autocompletion=backend_names)]
BackendName = Annotated[
    str, typer.Argument(metavar="BACKEND", help="Its name or address.", autocompletion=backend_names)
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The name to give it.")]
Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="ssh://me@host, k8s://context/namespace, ...")
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="A setting of the backend (repeatable)."),
]
AcceptKey = Annotated[
    str,
    typer.Option("--accept-key", metavar="SHA256:...", help="Accept the host if it shows this key."),
]
Cluster = Annotated[
    str,
    typer.Argument(metavar="[BACKEND]", help="A cluster's name or address.", autocompletion=backend_names),
]
User = Annotated[
    str,
    typer.Option(
        "--user",
        metavar="NAME",
        help="The user to grant it to; system:serviceaccount:NAMESPACE:NAME for a service account.",
    ),
]
Untested = Annotated[bool, typer.Option("--untested", help="Add it without connecting to it.")]
Linger = Annotated[
    bool,
    typer.Option(
        "--linger",
        help="Have the host keep your jobs: after your last session, and what waits over a restart (systemd).",
    ),
]
Off = Annotated[bool, typer.Option("--off", help="Have it start nothing any more after a restart.")]
HeldBy = Annotated[
    str, typer.Argument(metavar="JOB", help="The job, as `fabric gpus` names it beside who holds a GPU.")
]
DrainOff = Annotated[bool, typer.Option("--off", help="Take it back: jobs start there again.")]
Show = Annotated[bool, typer.Option("--show", help="Only say who drains it, and since when.")]
Purge = Annotated[bool, typer.Option("--purge", help="Also remove everything that this home has there.")]
Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Names or addresses; else all.", autocompletion=backend_names),
]

_COLOURS = {"ok": "green", "lack": "yellow", "wrong": "red"}


@command("list", "fabric backend list", "fabric backend list --json")
def list_(json: Json = False) -> None:
    """List the backends that jobs can run on."""
    from workbench.services.backends.installed import backend_types
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
    "fabric backend add lab ssh://lab --linger",
    "fabric backend add cloud ssh://cloud -o on_demand.start='./start.sh' -o on_demand.stop='./stop.sh'",
)
def add(
    name: NewName,
    address: Address,
    option: Options = None,
    accept_key: AcceptKey = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    linger: Linger = False,
    untested: Untested = False,
) -> None:
    """Add a backend under a name to the user's configuration file.

    It is tested first, and the findings are printed. An unknown host key is shown for you to accept.
    --linger does what `fabric backend linger` does.
    """
    from workbench.config import add_backend
    from workbench.services.backends.linger import keep_jobs
    from workbench.services.backends.setup import new_backend, parse_settings

    if linger and untested:
        raise UsageError(
            "--linger connects to the host, and --untested does not", hint="leave one of them out"
        )
    within = {key: text for key, text in (("context", kube_context), ("namespace", namespace)) if text}
    options = new_backend(name, address, parse_settings(option or [], within))
    if not untested:
        from workbench.services.backends.probe import reach
        from workbench.terminal.prompts import HostKeyPrompt

        found = reach(options, HostKeyPrompt(accept_key))
        if linger:
            for text in keep_jobs(options).sentences():
                narrate(text)
            found = reach(options, HostKeyPrompt(accept_key))
        print_findings(found)
    add_backend(name, options.type, address, dict(options.options))
    narrate(f"added {name}; `fabric backend test {name}` tests it, `fabric run --backend {name}` uses it")


@command(
    "linger",
    "fabric backend linger lab",
    "fabric backend linger lab --off",
    "fabric backend linger lab --json",
)
def linger(name: BackendName, off: Off = False, json: Json = False) -> None:
    """Have a host keep your jobs: after your last session there, and what waits there over a restart.

    It runs `loginctl enable-linger` there, for hosts that end all that runs in a session with it, and writes a unit of
    your systemd there that starts what waits when the machine has started. Without systemd it prints a line for your
    crontab. --off removes the unit, and what was kept for it; that you linger stays.
    """
    from workbench.services.backends.linger import Kept, keep_jobs, start_nothing
    from workbench.services.backends.placement import backend_options

    options = backend_options(name)
    if off:
        start_nothing(options)
    kept = Kept(has_systemd=True) if off else keep_jobs(options)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(kept.document(options.name))
    elif off:
        narrate("what waits there waits for you after a restart of it")
    else:
        for text in kept.sentences():
            narrate(text)


@command(
    "drain",
    "fabric backend drain gpubox",
    "fabric backend drain gpubox --off",
    "fabric backend drain gpubox --show",
    "fabric backend drain gpubox --json",
)
def drain(name: BackendName, off: DrainOff = False, show: Show = False, json: Json = False) -> None:
    """Have a host be empty soon, as its operators and root may.

    Nothing that needs GPUs starts there, of whomever; jobs that may be preempted end and wait for their turn, and what
    may not be runs to its end. Operators are the accounts and groups that root names in the host's policy. Exit code
    77: you are none there, or with --off somebody else drains it, too.
    """
    from workbench.services.backends.placement import backend_options
    from workbench.services.backends.setup import drain_host

    if off and show:
        raise UsageError("--off takes it back, and --show only looks", hint="leave one of them out")
    options = backend_options(name)
    found = drain_host(options, "end" if off else "look" if show else "begin")
    if json:
        from workbench.terminal.json_output import print_document

        print_document(found.document(options.name))
        return
    for text in (found.sentence(options.name), *found.remarks()):
        narrate(text)


@command("halt", "fabric backend halt gpubox k3f9x2mtq", "fabric backend halt gpubox k3f9x2mtq --json")
def halt(name: BackendName, job: HeldBy, json: Json = False) -> None:
    """Have a job end that holds GPUs at a host, of whomever, as the host's operators may.

    It ends as by `fabric halt`, within its grace period, five minutes at most, and its reason names you. Whose it is
    can resume it. Jobs of your own are ended by `fabric halt`. Exit code 66: no such job holds a GPU there. 77: you are
    not an operator of the host.
    """
    from workbench.services.backends.placement import backend_options
    from workbench.services.backends.setup import end_job

    options = backend_options(name)
    found = end_job(options, job)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(found.document(options.name))
    else:
        narrate(f"{found.person}'s job {found.job} on {options.name} is to end: attempt {found.attempt}")


@command("remove", "fabric backend remove gpubox", "fabric backend remove gpubox --purge")
def remove(name: Name, purge: Purge = False) -> None:
    """Remove a backend from the configuration file; its jobs stay as they are.

    --purge first removes everything that this home has there: agents, code, environments and what jobs left.
    What was already copied back stays here.
    """
    from workbench.config import remove_backend

    if purge:
        from workbench.services.backends.placement import backend_options
        from workbench.services.backends.setup import purge as remove_all

        remove_all(backend_options(name))
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
    """Test backends: show what was found, what is missing, and what to do about it.

    If a backend cannot be used, the exit code says why: 69 unreachable, 77 access denied, 78 unknown.
    """
    from workbench.services.backends.placement import CLUSTER, backend_options, known_backends
    from workbench.services.backends.probe import probe
    from workbench.terminal.prompts import HostKeyPrompt

    reports = {}
    for name in names or ([CLUSTER] if kube_context or namespace else known_backends()):
        options = backend_options(name, context=kube_context, namespace=namespace)
        reports[name] = probe(options, HostKeyPrompt(accept_key))
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            [
                {
                    "schema": "fabric.backend-test/1",
                    "name": name,
                    "usable": report.usable,
                    "findings": [finding_document(each) for each in report.findings],
                }
                for name, report in reports.items()
            ]
        )
    else:
        for name, report in reports.items():
            print(report.verdict(name))
            print_findings(report.findings)
    return next((report.exit_code for report in reports.values() if report.exit_code), 0)


@command(
    "role",
    "fabric backend role k8s | kubectl apply -f -",
    "fabric backend role k8s://lab/team --user alice > role.yml",
)
def role(
    cluster: Cluster = "k8s",
    user: User = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    json: Json = False,
) -> None:
    """Print the Role that jobs need in a cluster's namespace, for its administrator to grant.

    Without --user, the cluster is asked who you are.
    """
    from workbench.services.backends.placement import backend_options
    from workbench.services.backends.setup import UNKNOWN_USER
    from workbench.services.backends.setup import role as grant_of

    grant = grant_of(backend_options(cluster, context=kube_context, namespace=namespace), user)
    if grant.error is not None:
        narrate(f"{grant.error}")
    if json:
        from workbench.terminal.json_output import print_document

        print_document(grant.document())
    else:
        sys.stdout.write(grant.yaml())
    if grant.user == UNKNOWN_USER:
        narrate("the cluster does not report who you are: replace YOU with your name, or give --user")


@command("login", "fabric backend login gpubox", "fabric backend login ssh://me@gpubox")
def login(name: BackendName) -> None:
    """Enter the credentials that a backend asks for: a password, a key's passphrase or a code.

    They are asked for once and kept only in the controller's memory; jobs that wait for them continue.
    """
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import backend_options
    from workbench.services.backends.setup import log_in
    from workbench.terminal.prompts import HostKeyPrompt, type_answer

    log_in(Home(default_home()), backend_options(name), type_answer, HostKeyPrompt())
    narrate(f"logged in to {name}")


def finding_document(finding: Finding) -> FindingEntry:
    """Return a finding as ``--json`` gives it."""
    return {
        "subject": finding.subject,
        "found": finding.found,
        "level": finding.level,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
    }


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings one a line, each lack with what follows from it and what to do."""
    from workbench.services.backends.probe import finding_lines

    for line in finding_lines(findings, lambda level, mark: style(mark, _COLOURS[level], sys.stdout)):
        print(line)


backend = Family(
    "backend",
    "List, add, remove and test backends, and log in to them.",
    (list_, add, remove, test, linger, drain, halt, login, role),
    default="list",
)
