"""The people of a history: they submit jobs, and halt, kill, resume or delete them; each command is a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from tests.simulation.searches import Search
from tests.simulation.tasks import Process
from workbench.controller.client.requests import ask
from workbench.controller.client.submission import Submission, submit
from workbench.errors import FabricError
from workbench.job import TERMINAL, JobId, State, short_id
from workbench.spec import SWEEP_LABEL, Framework, JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import is_over
from workbench.store.queries.home_queue import ask_for_position, waiting_jobs
from workbench.store.queries.jobs import job

if TYPE_CHECKING:
    from tests.simulation.world import World

FRAMEWORK: Final = Framework(command="true")
PATIENCE_SECONDS: Final = 3000.0
"""How long somebody waits for jobs to end, once nothing goes wrong any more; then those must be killed that hang."""

CROWDED: Final = 0.3
"""In how many histories all jobs want the GPUs of one host, so that they wait there."""

SWEPT: Final = 0.3
"""In how many histories most jobs belong to a sweep, of which only some may run at once."""

FAILING: Final = 0.3
"""The share of histories in which most learners fail by themselves."""

LETTERS: Final = "abcdefghjkmnpqrstuvwxyz"


class People:
    """Everybody who uses the home."""

    def __init__(self, world: World, jobs: int) -> None:
        self._world = world
        self.jobs = jobs
        self._stopped: set[str] = set()
        self.resumed: set[str] = set()
        """Jobs that somebody has asked to go on."""
        self._moved: list[JobId] = []
        """Jobs that went on at another target, and are deleted when all have ended."""
        self._delete_at: float | None = None
        self.refused: set[JobId] = set()
        """Jobs of which their command said that they were not submitted."""
        self.is_over = False
        self._are_crowded = world.chance.of("crowds").random() < CROWDED
        sweeps = world.chance.of("sweeps")
        self._are_swept = sweeps.random() < SWEPT
        self._at_most = 1 + int(sweeps.random() * 3)
        self.jobs_fail = world.chance.of("jobs that fail").random() < FAILING
        """Whether jobs have one learner each, which fails more often than not, and restarts."""
        self.search = Search(world)
        self._ids = [JobId(f"training-aaaaaaa{LETTERS[n // 23]}{LETTERS[n % 23]}") for n in range(jobs)]

    def was_stopped(self, job_id: str) -> bool:
        """Say whether anybody asked for a job to be stopped: a person, its search, or a rule of its own."""
        sql = "SELECT 1 FROM requests WHERE job_id = ? AND kind IN ('halt', 'kill', 'delete') LIMIT 1"
        return job_id in self._stopped or self._world.checks.store.row(sql, (job_id,)) is not None

    def values_of(self, job_id: str, epoch: int) -> dict[str, list[float]]:
        """Return what a job reports after so many epochs: trials are compared, so each has another loss."""
        if job_id in self._ids:
            return {"loss": [1.0 / epoch]}
        return {"loss": [(1 + crc32(job_id.encode()) % 100) / epoch], "epoch": [float(epoch)]}

    def begin(self) -> None:
        """Plan what people do."""
        chance = self._world.chance
        for number, job_id in enumerate(self._ids):
            at = chance.between("when jobs are submitted", 0.0, 20.0) if number else 0.0
            self._world.scheduler.after(at, partial(self._submit, job_id))
        self.search.begin()

    def run(
        self, name: str, work: Callable[[Store], None], failed: Callable[[], None] = lambda: None
    ) -> None:
        """Run a command; ``failed`` is called where it ends with an error that it says."""
        world = self._world
        process = Process(name)

        def command() -> None:
            try:
                with Store.open(world.home, makes=False) as store:
                    work(store)
            except FabricError as error:
                world.story(f"{name}: {error}")
                failed()
            world.ensure_controller()

        world.scheduler.start(process, command, "command")

    def visit(self) -> None:
        """Look in on jobs that are open, as a screen does: it starts a controller where none runs."""
        if self._left() or self._has_requests() or self.search.left():
            self._world.ensure_controller()

    # Submitting

    def _submit(self, job_id: JobId) -> None:
        world, chance = self._world, self._world.chance
        draw = chance.of("what jobs are")
        target = chance.choose("where jobs go", world.targets)
        if self._are_crowded:
            target = next((one for one in world.targets if one.kind == "ssh"), target)
        earlier = self._ids[: self._ids.index(job_id)]
        after = ""
        if earlier and draw.random() < 0.15:
            mode = "completed" if draw.random() < 0.5 else "ended"
            after = f"{earlier[int(draw.random() * len(earlier))]}:{mode}"
        learners = 1 if draw.random() < 0.6 or self.jobs_fail else 2 + int(draw.random() * 2)
        place = self._group() or target.name
        learners = max(learners, place.count("+") + 1)
        sweep = self._sweep(place)
        rules, policies = self._rules()
        spec = JobSpec(
            name="simulated",
            framework=FRAMEWORK,
            learners=learners,
            gpus=max(_gpus(draw), int(self._are_crowded)),
            cpus=1.0 if draw.random() < 0.3 else None,
            max_restarts=int(draw.random() * 3) + self.jobs_fail,
            max_platform_restarts=int(draw.random() * 4),
            max_runtime_seconds=5.0 + 20 * draw.random() if draw.random() < 0.15 else None,
            grace_seconds=1.0 + int(draw.random() * 5),
            settle_seconds=1.0 + int(draw.random() * 5),
            ends_when="first" if draw.random() < 0.6 else "all",
            after=(after,) if after else (),
            **self._queued(),
            labels={SWEEP_LABEL: sweep} if sweep else {},
            at_most=self._at_most if sweep else None,
            stop_when=rules,
            log_policies=policies,
        )
        world.checks.allow(job_id, spec.max_restarts, spec.max_platform_restarts)

        def work(store: Store) -> None:
            submission = Submission(spec, "", {}, world.refs[place], "", {}, job_id=job_id)
            submit(store, submission, origin="simulation")

        world.story(
            f"{short_id(job_id)} is submitted to {place}: {learners} learners, {spec.gpus} GPUs each, "
            f"restarts {spec.max_restarts} and {spec.max_platform_restarts}{', after ' + after if after else ''}"
            f"{f', {self._at_most} at most of the sweep {sweep}' if sweep else ''}"
            f"{''.join(f', {one}' for one in (*rules, *policies))}"
            f"{f', at {spec.begin}' if spec.begin else ''}"
        )
        self.run(f"submit of {short_id(job_id)}", work, lambda: self.refused.add(job_id))
        if chance.is_active("people"):
            world.scheduler.after(chance.between("when people act", 0.0, 30.0), lambda: self._act(job_id))
        if chance.is_active("queue"):
            world.scheduler.after(
                chance.between("when the queue is changed", 0.0, 20.0), lambda: self._change(job_id)
            )

    def _queued(self) -> dict[str, Any]:
        """Return what a job says of its turn."""
        draw = self._world.chance.of("when jobs begin")
        if not self._world.chance.is_active("queue") or draw.random() < 0.5:
            return {}
        return {"priority": int(draw.random() * 101), "begin": self._time_in(40 * draw.random())}

    def _time_in(self, seconds: float) -> str:
        """Return a time so many seconds from now, by the clock here, as manifests write it."""
        return datetime.fromtimestamp(self._world.scheduler.now_us() / 1e6 + seconds, UTC).isoformat()

    def _group(self) -> str:
        """Return the hosts that a job is to run on together; empty for a job at one target."""
        world = self._world
        if not world.groups or world.chance.of("who goes to groups").random() < 0.4:
            return ""
        return world.chance.choose("which group", world.groups)

    def _rules(self) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
        """Return the stop rules and the log policies of a job; a job reports 1, 1/2, 1/3, 1/4 at most."""
        if not self._world.chance.is_active("rules"):
            return (), ()
        draw = self._world.chance.of("rules")
        rules, policies = [], []
        if draw.random() < 0.6:
            then = ("halt", "kill", "tell")[int(draw.random() * 3)]
            rules.append({"metric": "loss", "below": (0.4, 0.6, 0.9)[int(draw.random() * 3)], "then": then})
        if draw.random() < 0.3:
            rules.append({"metric": "loss", "no_better_for": 1, "after": 1, "goal": "maximize"})
        if draw.random() < 0.6:
            policies.append({"pattern": f"line {1 + int(draw.random() * 4)}$", "action": "cancel_retries"})
        return tuple(rules), tuple(policies)

    def _sweep(self, target: str) -> str:
        """Return the sweep that a job belongs to; most sweeps are at one target alone."""
        draw = self._world.chance.of("sweeps")
        if not self._are_swept or draw.random() < 0.3:
            return ""
        return "everywhere" if draw.random() < 0.1 else f"at {target}"

    def _act(self, job_id: JobId) -> None:
        world, chance = self._world, self._world.chance
        if chance.ended:
            return
        if chance.goes_wrong("people", "act", 3.0):
            kind = chance.choose("what people ask", ("halt", "kill", "resume", "resume", "delete", "halt"))
            self.ask(job_id, kind)
        world.scheduler.after(chance.between("when people act", 0.0, 20.0), lambda: self._act(job_id))

    def _change(self, job_id: JobId) -> None:
        """Change where a job stands that waits, or have one that has ended go on at another target."""
        world, chance = self._world, self._world.chance
        if chance.ended:
            return
        if chance.goes_wrong("queue", "change", 3.0):
            draw = chance.of("what of the queue is changed")
            priority = int(draw.random() * 101) if draw.random() < 0.5 else None
            begin = ("", self._time_in(60 * draw.random() - 20))[int(draw.random() * 2)]
            backend = chance.choose("where a job goes on", list(world.refs))
            process = f"change of {short_id(job_id)}"
            self.run(process, lambda store: self._ask_for_change(store, job_id, priority, begin, backend))
        world.scheduler.after(
            chance.between("when the queue is changed", 0.0, 15.0), lambda: self._change(job_id)
        )

    def _ask_for_change(
        self, store: Store, job_id: JobId, priority: int | None, begin: str, backend: str
    ) -> None:
        world, row = self._world, job(store, job_id)
        if row is not None and is_over(row) and row.deleted_us is None:
            target = world.refs[backend]
            self.resumed.add(job_id)
            if target != row.target and job_id not in self._moved:
                self._moved.append(job_id)
            world.story(f"somebody asks: resume {short_id(job_id)} at {backend}")
            ask(store, job_id, "resume", origin="simulation", payload={"place": asdict(target)})
        one = next((one for one in waiting_jobs(store, asked=True) if one.row.id == job_id), None)
        if one is None:
            return
        stands = replace(one.stands, begin=begin)
        if priority is not None:
            stands = replace(one.stands, priority=priority)
        text = f"priority {stands.priority}, begin {stands.begin}"
        world.story(f"somebody asks: {short_id(job_id)} has {text}")
        ask_for_position(store, one.row, stands, text, "somebody", "simulation")

    def ask(self, job_id: JobId, kind: str) -> None:
        """Ask for something."""
        if kind in ("halt", "kill", "delete"):
            self._stopped.add(job_id)
        if kind == "resume":
            self.resumed.add(job_id)
        self._world.story(f"somebody asks: {kind} {short_id(job_id)}")
        self.run(f"{kind} of {short_id(job_id)}", lambda store: self._ask(store, job_id, kind))

    def _ask(self, store: Store, job_id: JobId, kind: str) -> None:
        ask(store, job_id, kind, origin="simulation")

    # When nothing goes wrong any more

    def settle(self) -> None:
        """Wait for all jobs to end; kill those that do not."""
        self._world.ensure_controller()
        until = self._world.scheduler.now + PATIENCE_SECONDS
        self._world.scheduler.after(1.0, lambda: self._wait(until))

    def _wait(self, until: float) -> None:
        world, left = self._world, self._left()
        self.is_over = not left and not self._has_requests() and not self.search.left()
        if self.is_over and self._moved:
            self.is_over = False
            if self._delete_at is None:
                pause_seconds = world.chance.choose("when moved jobs are deleted", (0.0, 400.0))
                self._delete_at = world.scheduler.now + pause_seconds
            if world.scheduler.now >= self._delete_at:
                self.ask(self._moved.pop(), "delete")
        if self.is_over:
            # A controller may still find a job whose command was killed once its history was written.
            world.scheduler.after(10.0, lambda: self._wait(until))
            return
        self.search.settle()
        world.ensure_controller()
        if world.scheduler.now >= until:
            world.nobody_waits_in_vain(left)
            for job_id, state in left:
                if state is not State.STORING:
                    self.ask(job_id, "kill")
            until = world.scheduler.now + PATIENCE_SECONDS
        world.scheduler.after(10.0, lambda: self._wait(until))

    def _left(self) -> list[tuple[JobId, State]]:
        """List the jobs that are open, or about to be deleted."""
        sql = "SELECT id, state, intent FROM jobs WHERE deleted_us IS NULL ORDER BY id"
        return [
            (JobId(job_id), State(state))
            for job_id, state, intent in self._world.checks.store.rows(sql)
            if State(state) not in TERMINAL or intent
        ]

    def _has_requests(self) -> bool:
        return self._world.checks.store.row("SELECT 1 FROM requests WHERE outcome = '' LIMIT 1") is not None


def _gpus(draw: Random) -> int:
    return int(draw.random() * 3) if draw.random() < 0.5 else 0
