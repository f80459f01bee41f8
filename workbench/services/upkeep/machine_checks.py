"""Checks of this machine: limits, helper programs, settings, hosts, and jobs that wait for a person."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backends.contract.host import Finding
from workbench.errors import BackendUnreachable, FabricError
from workbench.formats import count
from workbench.paths import Home

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions

FILES_LEAST: Final = 1024
INSTANCES_ADVISED: Final = 1024
"""``max_user_instances`` of inotify: a job that writes files of metrics takes one, a command that follows one too."""

SHOWN_JOBS: Final = 5


def limits(home: Home) -> Iterator[Finding]:
    """Look at how many files a process may open, and whether files can be watched."""
    import resource

    from workbench.learner.platform.inotify import LEFT_TO_OTHERS, open_inotify

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_LEAST and hard != resource.RLIM_INFINITY and hard < FILES_LEAST:
        yield Finding(
            "open files", f"at most {soft}", "lack", "many jobs at once may fail", f"ulimit -n {FILES_LEAST}"
        )
    watches = Path("/proc/sys/fs/inotify/max_user_instances")
    if watches.exists():
        opened = open_inotify()
        if opened is not None:
            opened.close()
            return
        advised = max(INSTANCES_ADVISED, 2 * int(watches.read_text()))
        yield Finding(
            "inotify",
            f"no more than {LEFT_TO_OTHERS} instances are left for you, and those stay for other programs",
            "lack",
            "output and metrics are seen a little later, since files are polled",
            f"sysctl fs.inotify.max_user_instances={advised}",
        )


def sessions(home: Home) -> Iterator[Finding]:
    """Say where systemd ends a person's jobs on this machine when they log out."""
    from workbench.learner.platform.login_session import is_ended_with_session, lingers

    if is_ended_with_session() and not lingers():
        yield Finding(
            "sessions",
            "KillUserProcesses is on",
            "lack",
            "jobs on this machine are ended when you log out",
            "loginctl enable-linger, once; then `fabric controller restart`",
        )


def python(home: Home) -> Iterator[Finding]:
    """Say which Python jobs would find."""
    from workbench.services.submit.submit_environment import active_interpreter

    found = active_interpreter()
    if found == sys.executable:
        yield Finding(
            "interpreter",
            f"{found}, which is fabric's own",
            "lack",
            "jobs get fabric's Python, not one with your packages",
            "activate the environment that you train in",
        )
    else:
        yield Finding("interpreter", f"{found}, for jobs that say python: current")


def helpers(home: Home) -> Iterator[Finding]:
    """Look for programs that some jobs need."""
    from workbench.data.stores.rclone import find_rclone

    try:
        find_rclone()
    except FabricError as error:
        yield Finding("rclone", error.message, "lack", "no job can use an object store", error.hint)
    if shutil.which("ssh") is None:
        consequence = "a backend with transport = openssh cannot be reached"
        yield Finding("ssh", "not there", "lack", consequence, "install openssh-client")


def settings(home: Home) -> Iterator[Finding]:
    """Say which keys of the configuration mean nothing."""
    from workbench.config import load_config

    for warning in load_config().warnings:
        where = f"{warning.file}:{warning.line}" if warning.line else warning.file
        yield Finding("configuration", f"{where}: {warning.key} {warning.problem}", "lack", "", warning.hint)


def variables(home: Home) -> Iterator[Finding]:
    """Say which ``FABRIC_*`` variables mean nothing."""
    from workbench.config import RUN_OPTIONS
    from workbench.manifest.builder.overrides import VARIABLES
    from workbench.manifest.yaml.faults import nearest

    known = {*VARIABLES, *(f"FABRIC_{name.upper()}" for name in RUN_OPTIONS), *OWN_VARIABLES}
    for name in sorted(os.environ):
        if (
            name.startswith("FABRIC_")
            and name not in known
            and not name.startswith(("FABRIC_TEST_", "FABRIC_PARAM_"))
        ):
            close = nearest(name, known)
            hint = f"did you mean {close}?" if close else "fabric help environment"
            yield Finding("environment", f"{name} means nothing", "lack", "", hint)


OWN_VARIABLES: Final = frozenset(
    {
        "FABRIC_HOME",
        "FABRIC_CONFIG",
        "FABRIC_PROFILE",
        "FABRIC_LEASES",
        "FABRIC_NO_CONTROLLER",
        "FABRIC_DEBUG",
        "FABRIC_SEED",
        "FABRIC_LEARNER",
        "FABRIC_ENVIRONMENT",
        "FABRIC_RCLONE",
        "FABRIC_ASCII",
        "FABRIC_WEB_TOKEN",
        "FABRIC_LINGER_SECONDS",
        "FABRIC_DATA_CACHE_BYTES",
        "FABRIC_STORE_PATIENCE_SECONDS",
        "FABRIC_FILESYSTEM",
        "FABRIC_AGENT",
        "FABRIC_REPORT",
        "FABRIC_PARAMS",
        "FABRIC_STOP_FILE",
    }
)


def troubled_jobs(home: Home) -> Iterator[Finding]:
    """Name the jobs that wait for somebody: what they need is their own reason and hint."""
    from workbench.job import short_id
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import open_jobs

    if not home.database.exists():
        return
    with Store.open(home) as store:
        troubled = [row for row in open_jobs(store) if row.reason.code]
    for row in troubled[:SHOWN_JOBS]:
        hint = row.reason.hint or f"fabric show {short_id(row.id)}"
        yield Finding("jobs", f"{short_id(row.id)} {row.name} waits: {row.reason.text}", "lack", "", hint)
    if len(troubled) > SHOWN_JOBS:
        more = len(troubled) - SHOWN_JOBS
        yield Finding(
            "jobs", f"and {count(more, 'more job')} like these", "lack", "", "fabric list --where is:problem"
        )


def retention(home: Home) -> Iterator[Finding]:
    """Say what retention would remove: it never does so by itself."""
    from workbench.config import load_config
    from workbench.services.upkeep.retention import removable_jobs, rule_of
    from workbench.store.db.database import Store

    table = load_config().retention
    if not table or not home.database.exists():
        return
    rule = rule_of({}, table)
    if not rule.chooses:
        return
    with Store.open(home) as store:
        amount = len(removable_jobs(store, rule))
    if amount:
        yield Finding("retention", f"{count(amount, 'job')} may go", "ok", "", "fabric prune")


CHECKS: Final[tuple[Callable[[Home], Iterator[Finding]], ...]] = (
    limits,
    sessions,
    python,
    helpers,
    settings,
    variables,
    troubled_jobs,
    retention,
)


ANSWER_SECONDS: Final = 10.0
"""How long all of them together have."""


def hosts(home: Home) -> Iterator[Finding]:
    """Say which hosts can be reached, and what each lacks."""
    from workbench.services.backends.placement import backend_options, known_backends

    options_of_hosts = [
        options for name in known_backends() if (options := backend_options(name)).type == "ssh"
    ]
    found: dict[str, list[Finding]] = {}
    threads = [
        threading.Thread(target=_ask, args=(options, found), daemon=True, name=f"ask {options.name}")
        for options in options_of_hosts
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + ANSWER_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    for options in options_of_hosts:
        yield from found.get(options.name) or [_silent(options)]


def _ask(options: BackendOptions, found: dict[str, list[Finding]]) -> None:
    from workbench.controller.client.sessions import load_client_backend

    subject = f"backend {options.name}"
    try:
        findings = list(load_client_backend(options).probe())
    except BackendUnreachable as error:
        found[options.name] = [
            Finding(subject, error.message, "lack", "no job can run there now", error.hint)
        ]
    except FabricError as error:
        found[options.name] = [Finding(subject, error.message, "wrong", "no job can run there", error.hint)]
    else:
        reach = next((each.found for each in findings if each.subject == "reach"), "it answers")
        lacks = [each for each in findings if each.level != "ok"]
        found[options.name] = [
            Finding(subject, reach),
            *(replace(each, subject=subject, found=f"{each.subject}: {each.found}") for each in lacks),
        ]


def _silent(options: BackendOptions) -> Finding:
    return Finding(
        f"backend {options.name}",
        f"it did not answer in full within {ANSWER_SECONDS:g} s",
        "lack",
        "jobs there may be slow to start",
        f"fabric backend test {options.name}",
    )


HOST_CHECKS: Final[tuple[Callable[[Home], Iterator[Finding]], ...]] = (hosts,)
