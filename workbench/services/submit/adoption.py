"""Adopts jobs: finds those of other homes on a backend, and takes them over into this home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from workbench.errors import UnknownName, UsageError
from workbench.job import JobId, short_id
from workbench.spec import JobSpec, spec_from_json
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Host
    from workbench.store.db.database import Store

ORIGIN = "cli"

PART = "has learners at other hosts, too"
"""What is said of a job of which this host has a part only."""


@dataclass(frozen=True, slots=True)
class AdoptedJob:
    """A job that this home has now."""

    is_new: bool
    """Whether it was not here before; one that was is left as it is."""
    missing_secrets: Sequence[str]
    """What a restart from here would lack."""


@dataclass(frozen=True, slots=True)
class AdoptableJob:
    """A job of another home of the same person."""

    options: BackendOptions
    home: str
    job_id: str
    attempt: int
    runner: str
    owner: str
    spec: JobSpec
    code_hash: str
    recorded: Mapping[str, Any]
    alive: bool
    """Whether any of its learners runs, or is to be started by its host."""
    is_part: bool
    """Whether other hosts have some of its learners: who knows this host alone cannot look after it."""
    now: str
    """What it does, in words: it runs, waits, and for whom where nobody there starts it any more, or is over."""


def find(store: Store, backend_name: str) -> list[AdoptableJob]:
    """List the jobs on a backend that belong to other homes of the same person.

    Raises:
        UsageError: the backend is this machine, or a cluster.
        BackendUnreachable: it does not answer.
    """
    from backends.contract.host import Host
    from workbench.services.backends.placement import backend_options, open_backend, refuse_several
    from workbench.store.db.database import home_uuid

    options = backend_options(backend_name)
    refuse_several(options)
    backend = open_backend(options)
    with closing(backend.open()) as host:
        if not isinstance(host, Host) or host.here:
            raise UsageError(f"'{backend_name}' keeps no jobs of other laptops", hint="name a host over SSH")
        found = list(_jobs(host, options, home_uuid(store.home)))
        frozen = {runner: backend.frozen(runner) for runner in {each.runner for each in found}}
        return [replace(each, options=frozen[each.runner]) for each in found]


def chosen(
    store: Store, found: Sequence[AdoptableJob], names: Sequence[str], *, watch: bool
) -> list[AdoptableJob]:
    """Return the jobs that are named, by name, id or the beginning of one; without names all that can be adopted.

    Raises:
        UnknownName: one of them is not there.
        UsageError: one of them has learners at other hosts, too, or this home watches it, and is to take it over.
    """
    for name in names:
        if not any(_is_named(each, name) for each in found):
            present = ", ".join(short_id(each.job_id) for each in found) or "none"
            raise UnknownName(f"there is no job {name} of another laptop", hint=f"there are: {present}")
    asked = [each for each in found if not names or any(_is_named(each, name) for name in names)]
    if names and (part := next((each for each in asked if each.is_part), None)):
        raise UsageError(
            f"{short_id(part.job_id)} {part.spec.name} {PART}, and cannot be adopted",
            hint="the machine that it was submitted from follows and ends it",
        )
    watched = [] if watch else [each for each in asked if _is_watched(store, each)]
    if names and watched:
        name = short_id(watched[0].job_id)
        raise UsageError(
            f"{name} {watched[0].spec.name} is only watched here",
            hint=f"`fabric delete {name}` removes what this machine has of it, and nothing there; then adopt it",
        )
    return [each for each in asked if not each.is_part and each not in watched]


def adopt(store: Store, found: AdoptableJob, *, watch: bool) -> AdoptedJob:
    """Take a job over for the controller of this home, which is woken.

    With ``watch`` it is only observed, never restarted or removed.

    Raises:
        UnknownName: its runner is not installed here.
        CannotWrite: the home takes no more.
    """
    from runners.registry import load_runner
    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.client.submission import Submission, take_up
    from workbench.services.submit.secrets_refresh import find_again
    from workbench.store.db.rows import OF_HOME, WATCHED, TargetRef
    from workbench.store.queries.jobs import job

    load_runner(found.runner)
    is_new = job(store, found.job_id) is None
    options = {**found.options.options, OF_HOME: found.home}
    spec = found.spec
    if watch:
        options[WATCHED] = "yes"
        spec = replace(spec, max_restarts=0, max_platform_restarts=0)
    target = TargetRef(found.options.name, found.options.type, found.runner, found.options.address, options)
    submission = Submission(
        spec=spec,
        manifest_text="",
        origins={},
        target=target,
        code_hash=found.code_hash,
        recorded=found.recorded,
        job_id=JobId(found.job_id),
    )
    take_up(store, submission, found.attempt, origin=ORIGIN)
    ensure_controller(store.home)
    return AdoptedJob(is_new, [] if watch else find_again(store.home, found.job_id, spec))


def _is_watched(store: Store, found: AdoptableJob) -> bool:
    from workbench.store.db.rows import WATCHED
    from workbench.store.queries.jobs import job

    row = job(store, found.job_id)
    return row is not None and bool(row.target.options.get(WATCHED))


def _jobs(host: Host, options: BackendOptions, ours: str) -> Iterator[AdoptableJob]:
    machine = PurePosixPath(host.folder(ours)).parent
    for home in host.call("children", folder=str(machine)):
        if home == ours:
            continue
        for job_id in host.call("children", folder=str(machine / home / "jobs")):
            folder = machine / home / "jobs" / job_id
            submitted = host.call("read_object", path=str(folder / "submitted.json"))
            if submitted is not None and submitted.get("format") == 1:
                yield _found(host, options, home, job_id, folder, submitted)


def _found(
    host: Host,
    options: BackendOptions,
    home: str,
    job_id: str,
    folder: PurePosixPath,
    submitted: Mapping[str, Any],
) -> AdoptableJob:
    spec = spec_from_json(submitted["spec"])
    part = (submitted.get("hosts") or {}).get("part") or ()
    numbers = part or range(1, spec.learners + 1)
    attempt = _last_attempt(host, folder, int(submitted["attempt"]), numbers)
    learners = [folder / f"attempt-{attempt}" / f"learner-{number}" for number in numbers]
    found = [host.call("learner", folder=str(learner)) for learner in learners]
    return AdoptableJob(
        options=options,
        home=home,
        job_id=job_id,
        attempt=attempt,
        runner=str(submitted["runner"]),
        owner=str(submitted["owner"]),
        spec=spec,
        code_hash=str(submitted["code_hash"]),
        recorded=submitted["recorded"],
        alive=any(one["alive"] for one in found),
        is_part=bool(part),
        now=f"{_now(found, options.name)}; {PART}" if part else _now(found, options.name),
    )


def _now(learners: Sequence[Mapping[str, Any]], host: str) -> str:
    from runners.shared.learner_status import is_waiting, until_given_again

    waiting = [one for one in learners if is_waiting(one)]
    if any(one["alive"] for one in learners if one not in waiting):
        return "runs"
    if not waiting:
        return "is over"
    left = [one for one in waiting if not one["alive"]]
    return until_given_again(left[0]["state"], host) if left else "waits"


def _last_attempt(host: Host, folder: PurePosixPath, attempt: int, learners: Sequence[int]) -> int:
    """Return the last attempt of a job that its host has begun by itself after the one that was launched."""
    from runners.shared.learner_status import followed_by

    while True:
        folders = [folder / f"attempt-{attempt}" / f"learner-{number}" for number in learners]
        states = [host.call("read_object", path=str(one / "state.json")) for one in folders]
        following = [found for state in states if (found := followed_by(state or {})) is not None]
        if not any(found.attempt == attempt + 1 for found in following):
            return attempt
        attempt += 1


def _is_named(found: AdoptableJob, text: str) -> bool:
    return found.job_id.startswith(text) or short_id(found.job_id).startswith(text) or found.spec.name == text
