"""Chooses one of several backends for a job: by what is free there, and by how much is asked for.

``--backend box1,box2`` names several. All are asked at the same time, once for all jobs of one command.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from workbench.config import members_of
from workbench.errors import BackendError, BackendUnreachable, FabricError, UnknownName, UsageError
from workbench.formats import count
from workbench.job import BEFORE_THE_COMMAND
from workbench.services.backends.placement import ChosenTarget, backend_options, choose_target, open_backend
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Inventory, Slot
    from workbench.paths import Home
    from workbench.spec import JobSpec
    from workbench.store.db.rows import JobRow

SEPARATOR: Final = ","


def split_names(text: str) -> tuple[str, ...]:
    """Return the backends that a text names, each once; an empty text names one, the default.

    Raises:
        UsageError: there is nothing between two commas, or some of several are to run it together.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(SEPARATOR)))
    if SEPARATOR in text and "" in names:
        raise UsageError(f"--backend {text}: a name is missing beside a comma", hint="box1,box2, say")
    refuse_groups(names, f"--backend {text}")
    return names


def refuse_groups(names: Sequence[str], where: str) -> None:
    """Refuse several hosts together beside other backends; ``where`` says where they are named.

    Raises:
        UsageError: some of several names are such ones.
    """
    if len(names) > 1 and (group := next((name for name in names if len(members_of(name)) > 1), "")):
        raise UsageError(
            f"{where}: {group} is several hosts together, and one of several backends is a single one",
            hint=f"--backend {group} alone runs the job on all of them",
        )


class Rank(IntEnum):
    """How soon a job can start at a backend, the best first."""

    STARTS = 0
    UNKNOWN = 1
    """What is free there is not known."""
    WAITS = 2
    OTHER_TYPE = 3
    """It has enough GPUs, but not of the type that the job asks for."""
    ON_DEMAND = 4
    """It does not answer, and is started for a job."""
    SILENT = 5
    LACKS = 6
    """It never has enough."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one of several backends has now."""

    name: str
    inventory: Inventory | None
    """None where it does not answer."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """GPUs that jobs wait for there, by their ids."""
    trouble: str = ""
    """Why it does not answer."""
    is_on_demand: bool = False
    under_way: tuple[JobRow, ...] = ()
    """Open jobs of this home there."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a job fits to a backend."""

    name: str
    rank: Rank
    score: float
    """Orders backends of one rank, smaller first."""
    text: str
    """What is there, as a clause: ``2 of 4 GPUs are free``."""


def fit_of(candidate: Candidate, spec: JobSpec, taken: float = 0.0) -> Fit:
    """Return how a job fits to a backend. Pure.

    Args:
        candidate: what the backend has.
        spec: the job.
        taken: the GPUs that jobs before it in the same command take there; the CPUs where it asks for no GPUs.
    """
    if candidate.inventory is None:
        if candidate.is_on_demand:
            return Fit(candidate.name, Rank.ON_DEMAND, 0.0, "is started on demand")
        return Fit(candidate.name, Rank.SILENT, 0.0, f"does not answer: {candidate.trouble}")
    if spec.gpus:
        return _fit_gpus(candidate, candidate.inventory, spec, taken)
    return _fit_cpus(candidate, candidate.inventory, spec, taken)


def _fit_gpus(candidate: Candidate, inventory: Inventory, spec: JobSpec, taken: float) -> Fit:
    from workbench.learner.queue.allocation import is_of_type  # as in _candidates

    nodes = [[slot for slot in node.slots if slot.memory_bytes] for node in inventory.nodes]
    fits_type = [[slot for slot in slots if is_of_type(slot.model, spec.gpu_type)] for slots in nodes]
    rank = Rank.WAITS
    if not _holds(fits_type, spec):
        if not any(nodes) and inventory.note:
            return Fit(candidate.name, Rank.UNKNOWN, 0.0, "its GPUs are not known")
        if not _holds(nodes, spec):
            return Fit(candidate.name, Rank.LACKS, 0.0, f"has {count(sum(map(len, nodes)), 'GPU')}")
        rank = Rank.OTHER_TYPE
    else:
        nodes = fits_type
    total = sum(map(len, nodes))
    free_slots = [[slot for slot in slots if slot.free] for slots in nodes]
    free = sum(map(len, free_slots))
    holders = {slot.holder_job for slots in nodes for slot in slots}
    asked = dict(candidate.waiting)
    for row in candidate.under_way:
        if row.state in BEFORE_THE_COMMAND and row.id not in holders:
            asked.setdefault(row.id, row.gpus * row.learners)
    before = sum(asked.values()) + int(taken)
    needed = spec.gpus * spec.learners
    are = "is" if 1 in (free, total) else "are"
    text = f"{free} of {count(total, 'GPU')} {are} free"
    if before:
        text += f" and {before} asked for"
    left = free - before - needed
    if rank is Rank.WAITS and left >= 0 and _holds(free_slots, spec):
        return Fit(candidate.name, Rank.STARTS, -left if spec.fit == "worst" else left, text)
    return Fit(candidate.name, rank, (total - free + before + needed) / total, text)


def _holds(nodes: Sequence[Sequence[Slot]], spec: JobSpec) -> bool:
    """Say whether machines with these GPUs hold all learners of a job; none is spread over two of them."""
    return sum(len(slots) // spec.gpus for slots in nodes) >= spec.learners


def _fit_cpus(candidate: Candidate, inventory: Inventory, spec: JobSpec, taken: float) -> Fit:
    """Return how a job without GPUs fits: it goes where the smallest part of the CPUs is asked for."""
    total = sum(node.cpus for node in inventory.nodes)
    if not total:
        return Fit(candidate.name, Rank.UNKNOWN, 0.0, "its CPUs are not known")
    if spec.cpus and sum(int(node.cpus // spec.cpus) for node in inventory.nodes) < spec.learners:
        return Fit(candidate.name, Rank.LACKS, 0.0, f"has {count(total, 'CPU')}")
    before = sum(_cpus(row.cpus, row.learners) for row in candidate.under_way) + taken
    share = (before + _cpus(spec.cpus, spec.learners)) / total
    rank = Rank.WAITS if spec.cpus and share > 1 else Rank.STARTS
    return Fit(candidate.name, rank, share, f"{before:g} of {count(total, 'CPU')} are asked for")


def _cpus(each: float | None, learners: int) -> float:
    """Return the CPUs of a job; one that asks for none counts as one for each learner."""
    return (each or 1.0) * learners


class BackendChoice:
    """Chooses the backends of the jobs of one command: each is asked once, and what a job takes counts for the next."""

    def __init__(self, home: Home, cancel: threading.Event | None = None) -> None:
        self._home = home
        self._cancel = cancel
        self._candidates: dict[str, Candidate] = {}
        self._taken: defaultdict[tuple[str, bool], float] = defaultdict(float)
        """By backend: the GPUs and the CPUs that jobs of this command take, which nobody there knows of yet."""

    def choose(
        self,
        name: str,
        runner: str,
        spec: JobSpec,
        *,
        context: str = "",
        namespace: str = "",
        near: Mapping[str, str] | None = None,
        must_fit: bool = True,
    ) -> ChosenTarget:
        """Choose the backend of a job, one of several where it names them, and the runner there.

        Args:
            name: the name or address of one, or of several with commas; empty takes the manifest's, else this machine.
            runner: a runner's name; empty takes the manifest's, else the one that the backend prefers.
            spec: the job.
            context: which context of a cluster's kubeconfig; empty takes the backend's.
            namespace: which namespace of a cluster; empty takes the backend's.
            near: by backend, what of it is there already, as a clause. It goes to the first of these that it names and
                that can run it.
            must_fit: whether the backend must be able to run the job; else what it lacks is a warning.

        Raises:
            UnknownName: there is no such backend or runner.
            UsageError: a context or namespace is given beside several.
            BackendUnreachable: none of those that answer can run the job, and others do not answer.
            BackendError: none of them can run it.
            FabricError: of one alone, as :func:`workbench.services.backends.placement.choose_target`.
        """
        names = split_names(name or spec.backend)
        if len(names) == 1:
            return choose_target(
                names[0], runner, spec, context=context, namespace=namespace, must_fit=must_fit
            )
        if context or namespace:
            raise UsageError(
                f"--{'context' if context else 'namespace'} is of one cluster, and {', '.join(names)} are several",
                hint="a backend of your configuration has its own: `fabric backend add`",
            )
        fits = self._ranked(names, spec)
        near = near or {}
        nearest = next((name for name in near if name in names), None)
        fits.sort(key=lambda fit: fit.name != nearest)
        refusals: dict[str, str] = {}
        for fit in fits:
            if fit.rank >= Rank.SILENT:
                refusals[fit.name] = fit.text
                continue
            try:
                chosen = choose_target(fit.name, runner, spec)
            except UnknownName:
                raise
            except FabricError as error:
                refusals[fit.name] = error.message.rstrip(".")
                continue
            needed = spec.gpus * spec.learners if spec.gpus else _cpus(spec.cpus, spec.learners)
            self._taken[fit.name, bool(spec.gpus)] += needed
            others = (one for one in fits if one.name != fit.name)
            note = _note(fit.name, near.get(fit.name, fit.text), others, refusals)
            return replace(chosen, notes=(note, *chosen.notes))
        refusal = _refusal(names, fits, refusals)
        if must_fit:
            raise refusal
        chosen = choose_target(names[0], runner, spec, must_fit=False)
        return replace(chosen, warnings=(f"{refusal.message}: {refusal.hint}", *chosen.warnings))

    def usable(self, names: Sequence[str], spec: JobSpec) -> tuple[list[str], tuple[str, ...]]:
        """Return those backends of several that a search may use, in their order, and notes of the others.

        Raises:
            UnknownName: there is no such backend.
            BackendUnreachable: none of them answers.
            BackendError: none of them has enough.
        """
        fits = self._ranked(names, spec)
        left = {fit.name: fit.text for fit in fits if fit.rank >= Rank.SILENT}
        if len(left) == len(fits):
            raise _refusal(names, fits, left)
        notes = tuple(f"no trial runs on {name}: it {text}" for name, text in left.items())
        return [name for name in names if name not in left], notes

    def _ranked(self, names: Sequence[str], spec: JobSpec) -> list[Fit]:
        """Return how a job fits to each of these backends, the best first."""
        self._ask([name for name in names if name not in self._candidates])
        order = {name: number for number, name in enumerate(names)}
        fits = [fit_of(self._candidates[name], spec, self._taken[name, bool(spec.gpus)]) for name in names]
        return sorted(fits, key=lambda fit: (fit.rank, fit.score, order[fit.name]))

    def _ask(self, names: Sequence[str]) -> None:
        if not names:
            return
        from workbench.services.cancel import check_cancelled

        options = {name: backend_options(name) for name in names}
        rows = self._under_way()
        for name, candidate in zip(options, _candidates(list(options.values()), self._cancel), strict=False):
            here = (_part_at(row, candidate.name) for row in rows)
            self._candidates[name] = replace(
                candidate, name=name, under_way=tuple(row for row in here if row is not None)
            )
        check_cancelled(self._cancel)

    def _under_way(self) -> list[JobRow]:
        if not self._home.database.exists():  # reading makes none
            return []
        from workbench.store.db.database import Store
        from workbench.store.queries.jobs import open_jobs

        with Store.open(self._home) as store:
            return open_jobs(store)


def _part_at(row: JobRow, backend: str) -> JobRow | None:
    """Return a job with those of its learners alone that are at a backend; None where it has none there."""
    from backends.contract.host import BackendOptions
    from backends.contract.host_group import learners_by_host, member_options

    target = row.target
    members = member_options(BackendOptions.of(target))
    for member, part in zip(members, learners_by_host(row.learners, len(members)), strict=True):
        if member.name == backend:
            return replace(row, learners=len(part))
    return None


def _candidates(backends: Sequence[BackendOptions], cancel: threading.Event | None) -> Iterator[Candidate]:
    # Most jobs name one backend, and nothing of this is loaded for them.
    from workbench.services.backends.inventory import ask_all

    return ask_all(backends, _candidate, _silent, cancel=cancel)


def _candidate(options: BackendOptions) -> Candidate:
    from workbench.services.backends.inventory import waiting_entries  # as in _candidates

    try:
        backend = open_backend(options)
        with closing(backend.open()) as opened:
            inventory = backend.inventory_of(opened)
            entries = waiting_entries(opened) or ()
    except FabricError as error:
        return _without_answer(options, error)
    except Exception as error:  # someone else's backend may raise anything, and the others are asked
        return _without_answer(options, FabricError(f"{type(error).__name__}: {error}"))
    return Candidate(options.name, inventory, {str(entry["job"]): int(entry["gpus"]) for entry in entries})


def _silent(options: BackendOptions) -> Candidate:
    from workbench.services.backends.inventory import silent_error  # as in _candidates

    return _without_answer(options, silent_error(options))


def _without_answer(options: BackendOptions, error: FabricError) -> Candidate:
    return Candidate(
        options.name,
        None,
        trouble=error.message.rstrip("."),
        is_on_demand=bool(options.options.get("on_demand")) and isinstance(error, BackendUnreachable),
    )


def _note(name: str, why: str, others: Iterator[Fit], refusals: Mapping[str, str]) -> str:
    """Say why a backend was chosen, beside the others."""
    beside = "; ".join(f"{one.name}: {refusals.get(one.name, one.text)}" for one in others)
    return f"on {name}, where {why} ({beside})" if beside else f"on {name}, where {why}"


def _refusal(names: Sequence[str], fits: Sequence[Fit], refusals: Mapping[str, str]) -> FabricError:
    hint = "; ".join(f"{name}: {refusals[name]}" for name in names)
    if any(fit.rank is Rank.SILENT for fit in fits):
        return BackendUnreachable(f"none of {', '.join(names)} answers and can run the job", hint=hint)
    return BackendError(f"none of {', '.join(names)} can run the job", hint=hint)
