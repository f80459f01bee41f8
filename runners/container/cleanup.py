"""Cleans up after ended learners: leftover containers, networks, secrets, and the owner of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from backends.contract.host import Host
from runners.container.engine import Engine
from runners.container.limits import Limits, is_refused
from runners.container.permissions import restore_ownership
from runners.container.plan import network_name
from runners.interface import AttemptRef, Observation
from runners.shared.environment import secrets_stem
from runners.shared.host_facts import HostFacts
from workbench.errors import FabricError
from workbench.job import LearnerPhase, learner_name
from workbench.learner.guard.container_command import EXIT_NOT_STARTED, EXIT_REMOVED
from workbench.learner.host.learners import is_over

ORDER_SECONDS: Final = 10.0
"""How long clean-up waits for an engine that hangs: meanwhile no status of any learner is reported."""

NETWORK_SECONDS: Final = 2.0
"""How long clean-up waits for an engine that keeps the network of containers that are gone."""

_OVER: Final = frozenset({LearnerPhase.EXITED, LearnerPhase.LOST})


class AttemptCleanup:
    """Cleans up attempts as their learners end."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._over: dict[AttemptRef, dict[int, bool]] = {}
        """By attempt: the learners that are over, and whether one's agent has begun the next attempt."""
        self._done: set[AttemptRef] = set()
        self._impatient: Engine | None = None

    def clean_up(
        self,
        attempts: Sequence[AttemptRef],
        observation: Observation,
        site: HostFacts,
        engine: Callable[[], Engine],
    ) -> None:
        """Clean up after the ended learners of an observation, before it is returned to the controller."""
        by_key = {(one.home, one.job_id, one.attempt): one for one in attempts}
        for status in observation.seen:
            attempt = by_key.get((status.ref.home, status.ref.job_id, status.ref.attempt))
            if attempt is None or status.phase not in _OVER or attempt in self._done:
                continue
            name = learner_name(attempt.job_id, attempt.attempt, status.ref.learner)
            try:
                self._forget_secrets(attempt, status.ref.learner)
                impatient = self._impatient_engine(engine)
                if status.exit_code == EXIT_NOT_STARTED and status.reason and is_refused(status.reason.text):
                    # The engine was replaced or reconfigured: the next attempt finds out its limits again.
                    Limits(self._host, site, impatient).remember(None)
                by_itself = not status.stopped and status.exit_code not in (
                    None,
                    EXIT_REMOVED,
                    EXIT_NOT_STARTED,
                )
                if not by_itself or not impatient.may_remove_by_itself:
                    impatient.remove_of(attempt.home, name)
                over = self._over.setdefault(attempt, {})
                over[status.ref.learner] = status.followed_by is not None
                if len(over) == len(attempt.numbers):
                    is_last, others_run = not any(over.values()), self._others_run(attempt, site)
                    self._clean_attempt(attempt, site, impatient, is_last=is_last, others_run=others_run)
                    self._done.add(attempt)
            except FabricError:
                continue  # removing the attempt and fabric gc clean up again
        self._over = {attempt: over for attempt, over in self._over.items() if attempt in attempts}
        self._done &= set(attempts)

    def remove(self, attempt: AttemptRef, site: HostFacts, engine: Callable[[], Engine]) -> None:
        """Remove an attempt's containers, network and secrets, and give its files back to the user."""
        for number in attempt.numbers:
            engine().remove_of(attempt.home, learner_name(attempt.job_id, attempt.attempt, number))
            self._forget_secrets(attempt, number)
        self._clean_attempt(attempt, site, engine(), is_last=True)

    def _impatient_engine(self, engine: Callable[[], Engine]) -> Engine:
        if self._impatient is None:
            self._impatient = engine().within(ORDER_SECONDS)
        return self._impatient

    def _clean_attempt(
        self, attempt: AttemptRef, site: HostFacts, engine: Engine, *, is_last: bool, others_run: bool = False
    ) -> None:
        network = network_name(attempt)
        if network and not engine.remove_network(attempt.home, network):
            for number in attempt.numbers:
                engine.remove_of(attempt.home, learner_name(attempt.job_id, attempt.attempt, number))
            # One that somebody else's container uses must not keep the job's files from their owner, nor a deleted job
            # from going: the next controller's sweep and fabric gc find it by its labels.
            engine.remove_network(attempt.home, network, seconds=NETWORK_SECONDS)
        job = site.home.job(attempt.job_id)
        folder = job.attempt(attempt.attempt)
        models = [str(folder.model(number)) for number in attempt.numbers]
        environment = self._host.call("read_object", path=str(folder.path / "environment.json")) or {}
        image = str((environment.get("image") or {}).get("id") or "")
        if not image:
            return
        own = models if others_run else [str(folder.job_state), *models]
        shared = [str(job.results), str(job.checkpoints), str(job.data)]
        # The host may have begun the next attempt already, which writes what the image's user has made there.
        is_all = is_last and not others_run
        restore_ownership(self._host, engine, own + shared if is_all else own, image)

    def _others_run(self, attempt: AttemptRef, site: HostFacts) -> bool:
        """Return whether learners of other hosts run in this one's folders, as where homes are in a network.

        The host whose learners end last gives back what all have written.
        """
        folder = site.home.job(attempt.job_id).attempt(attempt.attempt)
        others = set(range(1, attempt.learners + 1)).difference(attempt.numbers)
        facts = (self._host.call("learner", folder=str(folder.learner(one).path)) for one in others)
        return any(one["alive"] and not is_over(one) for one in facts)

    def _forget_secrets(self, attempt: AttemptRef, learner: int) -> None:
        stem = secrets_stem(self._host.call("secret_folder"), attempt, learner)
        self._host.call("remove", paths=[f"{stem}.sh"])
