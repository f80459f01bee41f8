"""Launches a container job: prepares image and code, leases slots, creates containers, starts an agent for each.

A launch can be cut off at any instant and repeated: containers are found again by their names, and the second
of two agents for one learner exits at once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from backends.contract.host import Host, Lock
from runners.container.engine import Engine
from runners.container.environment import ENVIRONMENT, MODEL, folders, inside_folder
from runners.container.fill_plan import PlanValues, program_of
from runners.container.image import image_document, is_settled, need_image
from runners.container.limits import Limits, is_refused, tries
from runners.container.permissions import (
    grant_access,
    has_hosts_network,
    needs_access,
    restore_ownership,
    user_of,
)
from runners.container.plan import acts_of, labels, network_name, ref_of_labels, refusals
from runners.container.requirements import EnvironmentBuild, ImageEnvironment
from runners.container.stores import link_of, own_folders
from runners.interface import HostWait, LaunchPlan, LaunchProgress, LaunchRequest
from runners.shared.agents import Agent, upload_agent
from runners.shared.bind_mounts import refuse_missing
from runners.shared.code import deploy_code
from runners.shared.container_defaults import image_of
from runners.shared.data_stores import data_of
from runners.shared.earlier_files import bring_earlier_files
from runners.shared.environment import CHOSEN, gpu_variables, job_folders, marker, secrets_stem
from runners.shared.gpu_leases import Leased, choose_port, lease, lease_text, leave_line, refuse_too_few
from runners.shared.hand_over import HandOver, restarts_document
from runners.shared.host_facts import HostFacts
from runners.shared.launch_document import check_secrets, check_supported, ref_of
from runners.shared.staged_launch import Rendezvous, StagedLaunch
from runners.shared.startup import AgentStarts, submitted_file
from runners.shared.store_setup import refuse_stores, secrets_with, with_stores
from workbench.errors import FabricError, LaunchRefused, RunnerError, SlotsBusy
from workbench.job import short_id
from workbench.learner.boot.sh_launch import render_secrets
from workbench.learner.guard.container_command import REASON, command_of, start_failure
from workbench.learner.guard.container_creation import (
    CONFLICT,
    LABEL_SLOTS,
    NOT_FOUND,
    SECRETS_SUFFIX,
    NameTaken,
    Reason,
    no_addresses,
    refusal,
    taken,
)
from workbench.learner.platform.engine_client import EngineRefused, EngineRequest
from workbench.learner.queue.allocation import RESERVED_CPUS
from workbench.learner.report import STOP_ANSWER


def refuse_gpus_in_containers(leased: Leased, request: LaunchRequest, engine: Engine) -> None:
    """Raise SlotsBusy where another attempt's container has leased GPUs: its agent was killed, and it is not over.

    A host's waiter does not look: its next job would fail, and the one after it (``docs/design.md``).
    """
    users = _in_containers(engine, request) if leased.lock is not None else {}
    for uuids in leased.by_learner.values():
        for uuid in uuids:
            if uuid in users:
                raise SlotsBusy(f"waits for GPU {uuid}: {users[uuid]} has a container with it")


def _in_containers(engine: Engine, request: LaunchRequest) -> dict[str, str]:
    """Return the GPUs of other attempts' containers by UUID, each with its owner for messages."""
    found = {}
    for container in engine.containers(LABEL_SLOTS):
        container_labels = container.get("Labels") or {}
        ref = ref_of_labels(container_labels)
        own = ref is not None and (ref.job_id, ref.attempt) == (
            request.attempt.job_id,
            request.attempt.attempt,
        )
        if container.get("State") in ("created", "running", "paused") and not own:
            for uuid in filter(None, container_labels[LABEL_SLOTS].split(",")):
                found[uuid] = f"job {short_id(ref.job_id)}" if ref else "another"
    return found


ENDS: Final = ("control", "output", "result", "exit")
"""The named pipes between an agent and its container, and within it, for setup and command each."""

TICKET: Final = {"shell_secrets_suffix": SECRETS_SUFFIX, "needs_port": False, "binds_cpus": False}
"""What the ticket of a container says beside that which the ticket of every attempt says."""


class ContainerLaunch(StagedLaunch):
    """The launch of one attempt, or of those of its learners that one of several hosts has."""

    def __init__(
        self,
        plan: LaunchPlan,
        host: Host,
        site: HostFacts,
        engine: Engine,
        progress: LaunchProgress,
        subscriber: str,
    ) -> None:
        self._plan = plan
        self._request = plan.request
        self._host = host
        self._site = site
        self._engine = engine
        self._progress = progress
        self._job, self._attempt = job_folders(plan.request, site)
        self._starts: dict[int, EngineRequest] = {}
        self._agent_starts = AgentStarts(plan, host, site, self._attempt, subscriber)
        self._prepared: PlanValues | None = None
        self._leased: Leased | None = None
        self._held: list[Lock] = []
        self._unstarted: Sequence[int] = ()
        """The learners whose slots are leased, until all of their agents are started."""
        self._meeting: Mapping[str, str] = {}

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self._host, self._site, self._engine)

    def launch(self) -> None:
        """Start the learners that have not begun, at the one host of the attempt."""
        waiting = self.pending()
        if not waiting:
            return
        wait = self._request.wait
        if wait is not None:
            self._check_can_wait(wait)
        self.prepare(waiting)
        if wait is not None:
            self._hand_over(waiting, SlotsBusy(wait.reason))
            return
        try:
            self._lease_slots(waiting)
        except SlotsBusy as busy:
            self._agent_starts.check_all_wait(waiting, busy)
            self._hand_over(waiting, busy)
            return
        try:
            self._refuse_gpus_in_containers()
            self.start(waiting, None)
        finally:
            self.release()
        self.await_begun(waiting)

    # The stages

    def pending(self) -> list[int]:
        """Return the numbers of the learners whose agents must be started; waits for agents that are starting."""
        return self._agent_starts.pending()

    def rendezvous(self) -> Rendezvous | None:
        """Return where learners that have begun here meet; None where none has."""
        return self._agent_starts.rendezvous()

    def prepare(self, waiting: Sequence[int]) -> None:
        """Bring the image, the code and what else these learners need to the host; no container is created.

        Raises:
            LaunchRefused: a retry cannot help.
        """
        self._refuse()
        image = need_image(self._engine, self._request, self._progress)
        self._prepared = self._prepare(waiting, image)

    def lease(self, waiting: Sequence[int]) -> None:
        """Lease the GPUs of these learners, and hold them until :meth:`start` or :meth:`release`.

        Raises:
            SlotsBusy: not enough are free; none is held then, nor by a container that a launch left.
            LaunchRefused: the host does not have so many.
        """
        self._unstarted = waiting
        try:
            self._lease_slots(waiting)
            self._refuse_gpus_in_containers()
        except FabricError:
            self.release()
            raise

    def refuse_too_few(self, waiting: Sequence[int]) -> None:
        """Refuse the job if the host never has the GPUs of these learners."""
        refuse_too_few(self._request, waiting, self._host, self._site)

    def leave_line(self) -> None:
        """Leave the host's queue."""
        leave_line(self._request, self._host, self._site)

    def choose_port(self, port: int | None = None) -> int:
        """Choose a free port of the host, or this one: containers use its network; the first learner inherits it."""
        return choose_port(self._host, self._site, lease_text(self._request, self._site, 0), self._held, port)

    def start(self, waiting: Sequence[int], rendezvous: Rendezvous | None) -> None:
        """Create the containers of these learners, then start their agents.

        Args:
            waiting: their numbers.
            rendezvous: where they meet those at other hosts; None where all are in a network of their own.
        """
        if self._leased is None:
            raise RuntimeError("the slots of learners are leased before they start")
        if rendezvous is not None:
            # Beside those of every learner, the one by which Determined's trials know the port.
            self._meeting = {**rendezvous.variables, "C10D_PORT": str(rendezvous.port)}
            # One that a launch left which was cut off would look for the others where they were to meet then.
            self._clear(waiting)
        self._start(waiting, self._values, self._leased)
        self._unstarted = ()
        if rendezvous is not None:
            # Nobody might ask for them any more: the launch ends here where another host fails.
            self._await_starts()

    def release(self) -> None:
        """Release slots and ports that no agent has inherited, and remove containers whose agents were not started."""
        leased, self._leased = self._leased, None
        unstarted, self._unstarted = self._unstarted, ()
        if leased is not None:
            leased.release()
        while self._held:
            self._held.pop().release()
        if unstarted:
            while self._starts:
                self._starts.popitem()[1].close()
            self._clear(unstarted)

    def await_begun(self, waiting: Sequence[int]) -> None:
        """Wait until the agents of these learners have begun, and the engine has answered to their starts.

        Raises:
            RunnerError: one ended before it began.
        """
        self._agent_starts.await_begun(waiting)
        self._await_starts()

    def stop_begun(self) -> None:
        """Kill the learners that have begun: those at another host cannot be started."""
        self._agent_starts.stop_begun()

    def _lease_slots(self, waiting: Sequence[int]) -> None:
        self._leased = lease(self._request, waiting, self._host, self._site)
        self._unstarted = waiting

    def _refuse_gpus_in_containers(self) -> None:
        if self._leased is not None:
            refuse_gpus_in_containers(self._leased, self._request, self._engine)

    @property
    def _values(self) -> PlanValues:
        """What was prepared."""
        if self._prepared is None:
            raise RuntimeError("a launch is prepared before learners wait or start")
        return self._prepared

    def _check_can_wait(self, wait: HostWait) -> None:
        """Raise SlotsBusy where nothing may be prepared ahead: the controller keeps the job waiting.

        Nobody could start it without Python. The jobs before it may make what its image is pulled or built from.
        """
        if not self._site.python:
            raise SlotsBusy(wait.reason)
        if wait.gates.after and not is_settled(self._engine, self._request):
            how = "built" if self._request.spec.build else "pulled"
            image = image_of(self._request)
            raise SlotsBusy(
                f"{wait.reason}; it waits here, not there: the image {image} is {how} after the jobs before it"
            )

    def _refuse(self) -> None:
        """Refuse the job if a retry cannot help."""
        check_supported(refusals(self._request))
        if not self._site.python:
            raise LaunchRefused(
                f"Containers are kept by an agent in Python 3.8 or newer, and {self._site.name} has none.",
                hint="Install python3 there; the images need none.",
                code="C104",
            )
        if self._request.attempt.part and not has_hosts_network(self._engine):
            raise LaunchRefused(
                f"Docker at {self._site.name} runs without root: its containers cannot use the network of that host,"
                " and a job over several hosts needs that.",
                hint="Use podman or Docker with root there, or --runner process.",
                code="C104",
            )
        refuse_stores(self._request, self._host, self._site, runner="container", agent_kind="python")
        refuse_missing(self._request, self._host, self._site)
        check_secrets(self._request)

    # Before slots are leased

    def _prepare(self, waiting: Sequence[int], image: Mapping[str, Any]) -> PlanValues:
        request, site, attempt = self._request, self._site, self._attempt
        self._progress("downloading code", stage="preparing")
        state = str(attempt.job_state)
        shared = [str(self._job.results), str(self._job.checkpoints), str(self._job.data), state]
        # Created here: the engine would create them as root.
        own = [str(inside_folder(request, learner, site)) for learner in waiting]
        # Passed as ``below``: running learners may have put links where these folders belong.
        stores = own_folders(request, site)
        below = {state: [attempt.logs.name, MODEL.removeprefix("/job/")], **stores}
        paths = [*shared, *own, *stores, *self._links(waiting)]
        self._host.call("make_folders", paths=paths, below=below)
        # FfDL's scripts expect this file.
        self._host.call("touch", paths=[str(attempt.job_state / request.attempt.job_id)])
        self._host.call("make_pipes", paths=[pipe for learner in waiting for pipe in self._pipes(learner)])
        models = [str(attempt.model(learner)) for learner in waiting]
        deploy_code(self._host, site, request, models, self._progress)
        bring_earlier_files(self._host, site, request, self._progress)
        agent = upload_agent(self._host, site, "python")
        environment = self._bring_environment(image, agent)
        trees = {path for learner in waiting for path in folders(request, learner, site).values()}
        files = [agent.importable, program_of(agent)]
        opens = needs_access(image, user_of(self._host)[0])
        if opens:
            self._take_back(image)
            grant_access(self._host, [*sorted(trees), *own], files, stores)
        return PlanValues(self._engine, agent, image, environment, opens)

    def _bring_environment(self, image: Mapping[str, Any], agent: Agent) -> ImageEnvironment | None:
        """Build the environment of ``requirements:``; record image and packages, and what was submitted."""
        environment, packages = None, []
        if self._request.spec.python == "requirements":
            building = EnvironmentBuild(self._request, image, self._engine, self._site, agent)
            packages, environment = building.build(self._progress), building.environment
        document = {
            "format": 1,
            "python": f"{ENVIRONMENT}/bin/python" if environment else "",
            "key": environment.key if environment else "",
            "packages": packages,
            "host": self._site.hostname,
            "image": image_document(self._request, image),
        }
        files = {str(self._attempt.path / "environment.json"): json.dumps(document) + "\n"}
        if not self._site.here:
            files |= submitted_file(self._plan, self._job)
        self._host.call("write_files", files=files)
        return environment

    def _links(self, learners: Sequence[int]) -> list[str]:
        """Return the paths that the agent will link to the data of stores; they are created as empty folders."""
        copied = [data for data in data_of(self._request) if data.store.is_copied]
        return [link_of(self._request, learner, self._site, data) for learner in learners for data in copied]

    def _take_back(self, image: Mapping[str, Any]) -> None:
        """Make what the attempts before wrote as another user ours: who owns a file alone may open it to others."""
        if self._request.attempt.attempt > 1:
            shared = [str(path) for path in (self._job.results, self._job.checkpoints, self._job.data)]
            restore_ownership(self._host, self._engine, shared, str(image["Id"]))

    def _pipes(self, learner: int) -> list[str]:
        folder = inside_folder(self._request, learner, self._site)
        return [f"{folder}/{end}.{act}" for end in ENDS for act in acts_of(self._request)]

    # Waiting

    def _hand_over(self, waiting: Sequence[int], busy: SlotsBusy) -> None:
        """Give the attempt to the host's waiter; when it starts, its agents create the containers.

        Raises:
            SlotsBusy: the host has no waiter, or it is not known which limits the engine can raise: the controller
                keeps the job waiting.
        """
        filling = self._values
        hand_over = HandOver(self._plan, self._host, self._site, filling.agent, busy)
        if (limits := self._limits.find(image_of(self._request))) is None:
            raise busy
        self._progress(busy.message, stage="waiting")
        # What a launch left that was cut off would hold GPUs and addresses meanwhile.
        self._clear(waiting)
        secrets = secrets_with(self._request, self._site)
        _exports(secrets)
        self._write_scripts(waiting)
        files = {}
        for learner in waiting:
            folder = self._attempt.learner(learner)
            info = {
                **self._container_info(learner),
                "create": self._creation(learner, waiting, filling, limits),
            }
            files[str(folder.path / "container.json")] = json.dumps(info) + "\n"
            document = self._document(learner, filling, (), "", limits)
            files[str(folder.launch)] = json.dumps(document) + "\n"
        self._host.call("write_files", files=files)
        hand_over.give(waiting, {**self._site.environment, **_variables(filling)}, **TICKET)

    def _creation(
        self, learner: int, waiting: Sequence[int], filling: PlanValues, limits: Sequence[str]
    ) -> dict[str, Any]:
        """Return what a learner's agent needs to know to create its container."""
        attempt = self._request.attempt
        document = filling.prepared(self._plan.of(learner).native["container"], limits)
        # Its name may stand for another image by then, and this one was prepared for.
        document["Image"] = filling.image["Id"]
        network = network_name(attempt)
        wait = self._request.wait
        return {
            "document": document,
            "is_after": wait is not None and bool(wait.gates.after),
            "podman": "DeviceRequests" in document["HostConfig"] and self._engine.is_podman,
            "home": attempt.home,
            # Made when it starts: an engine has addresses for some thirty networks, of all its users.
            "network": {
                "name": network,
                "labels": labels(attempt, 0, self._request.owner),
                "make": learner == 1,
                "peers": [self._plan.of(other).name for other in waiting if other != learner],
            }
            if network
            else None,
        }

    # Starting

    def _start(self, waiting: Sequence[int], filling: PlanValues, leased: Leased) -> None:
        """Create the containers, write the launch documents, then start the agents."""
        self._progress("starting", stage="starting")
        request, site = self._request, self._site
        self._write_scripts(waiting)
        secrets = self._write_secrets(waiting)
        if network := network_name(request.attempt):
            self._make_network(network)
        documents, files = {}, {}
        for learner in waiting:
            folder = self._attempt.learner(learner)
            slots = leased.by_learner[learner]
            self._create(learner, filling, slots, secrets.get(learner, ""))
            limits = self._limits.known() if self._is_followed else None
            document = self._document(learner, filling, slots, secrets.get(learner, ""), limits)
            files[str(folder.path / "container.json")] = json.dumps(self._container_info(learner)) + "\n"
            files[str(folder.launch)] = json.dumps(document) + "\n"
            documents[learner] = document
        self._host.call("write_files", files=files)
        # With data to download, the agent starts the container after that: mounts must have the data.
        for learner in waiting if not self._links(waiting[:1]) else ():
            # The container waits for the agent; starting both at once saves time.
            name = self._plan.of(learner).name
            self._starts[learner] = self._engine.begin("POST", f"containers/{name}/start")
        variables = _variables(filling)
        for learner, document in documents.items():
            slots_lock = leased.part(learner)
            # The first learner listens on MASTER_PORT.
            locks = [lock for lock in (slots_lock, *(self._held if learner == 1 else ())) if lock is not None]
            pid = self._host.spawn(
                document["guard"],
                env={**site.environment, **variables, "FABRIC_GUARD": marker(ref_of(self._plan, learner))},
                cwd="/",
                output=str(self._attempt.learner(learner).path / "guard.log"),
                holding=locks,
            )
            for lock in locks:
                lock.write(lease_text(request, site, pid))
            if slots_lock is not None:
                slots_lock.release()

    def _document(
        self,
        learner: int,
        filling: PlanValues,
        slots: Sequence[str],
        secrets: str,
        limits: Sequence[str] | None,
    ) -> dict[str, Any]:
        """Return a learner's planned launch document with the values that are chosen at launch.

        Without GPUs the host's waiter chooses these values. Without known limits no attempt follows at the host.
        """
        agent, folder = filling.agent, self._attempt.learner(learner)
        planned = self._plan.of(learner).native["launch"]
        document = {**planned, "secrets_file": None, "slots": list(slots), "guard": agent.argv(folder)}
        if secrets:
            document["secrets_file"] = secrets + ".json"
        for act in acts_of(self._request):
            document[act] = command_of(document["guard"], str(folder.path), act)
        chosen = {name: self._chosen(name, value) for name, value in planned["env"].items()}
        document["env"] = {**chosen, **gpu_variables(slots)}
        if self._request.spec.cpus:
            document[RESERVED_CPUS] = self._request.spec.cpus
        if self._is_followed and self._request.restarts is not None and limits is not None:
            document["restarts"] = {
                **restarts_document(self._request, self._request.restarts, self._site, **TICKET),
                "container": self._recreation(learner, filling, limits),
            }
        return with_stores(self._request, self._host, self._site, document)

    def _chosen(self, name: str, value: str) -> str:
        """Return a variable's value: where learners meet, if that was chosen at launch, else as it was planned."""
        return self._meeting.get(name, value) if value == CHOSEN else value

    @property
    def _is_followed(self) -> bool:
        """Whether the host begins the next attempt, which runs in this one's image: nobody there pulls another one."""
        return self._request.restarts is not None and self._request.spec.image_pull != "always"

    def _recreation(self, learner: int, filling: PlanValues, limits: Sequence[str]) -> dict[str, Any]:
        """Return what this attempt's container is made from, of which its agent makes that of the next attempt."""
        inside = inside_folder(self._request, learner, self._site)
        opened = [str(self._attempt.job_state), str(self._attempt.model(learner)), str(inside)]
        everyone = self._request.attempt.numbers
        return {
            "config": {
                **self._container_info(learner),
                "create": self._creation(learner, everyone, filling, limits),
            },
            "folders": [str(inside), *self._links([learner])],
            "stores": own_folders(self._request, self._site),
            "pipes": self._pipes(learner),
            "files": self._scripts(learner),
            "open": opened if filling.opens else [],
        }

    def _await_starts(self) -> None:
        """Wait for the engine's answers to the starts; failures are written down for the agents."""
        while self._starts:
            learner, request = self._starts.popitem()
            try:
                request.answer()
            except EngineRefused as error:
                if error.status not in (NOT_FOUND, CONFLICT):
                    self._write_start_failure(learner, error)
            except OSError:
                continue  # the agent notices it

    def _write_start_failure(self, learner: int, error: EngineRefused) -> None:
        """Write down for a learner's agent why its container did not start: the engine reports it only once."""
        text, code, hint = start_failure(error, self._container_info(learner))
        path = self._attempt.learner(learner).path / REASON
        reason = {"text": text, "code": code, "hint": hint}
        self._host.call("write_files", files={str(path): json.dumps(reason)})

    def _container_info(self, learner: int) -> dict[str, Any]:
        """Return ``container.json``: what the agent's command needs to drive the container."""
        return {
            "engine": self._engine.path,
            "name": self._plan.of(learner).name,
            "image": image_of(self._request),
            "memory_bytes": self._request.spec.memory_bytes,
            "acts": acts_of(self._request),
        }

    def _write_scripts(self, waiting: Sequence[int]) -> None:
        """Write what is run in the containers, and make the files that are written in there."""
        files = {path: text for learner in waiting for path, text in self._scripts(learner).items()}
        self._host.call("write_files", files=files, mode=0o666)

    def _scripts(self, learner: int) -> dict[str, str]:
        texts = {"command": self._request.spec.framework.command, "setup": self._request.spec.setup}
        folder = inside_folder(self._request, learner, self._site)
        # Written in there by whoever the image runs as; made here, they are the person's all the same.
        written = (folder.parent / "report.jsonl", folder / "python", folder / STOP_ANSWER)
        return {
            **{str(folder / f"{act}.sh"): texts[act] + "\n" for act in acts_of(self._request)},
            **dict.fromkeys(map(str, written), ""),
        }

    def _write_secrets(self, waiting: Sequence[int]) -> dict[int, str]:
        """Write secrets as JSON for agents and as shell for containers; return the paths without suffix, by learner."""
        secrets = secrets_with(self._request, self._site)
        if not secrets:
            return {}
        attempt = self._request.attempt
        secret_folder = self._host.call("secret_folder")
        names = {learner: secrets_stem(secret_folder, attempt, learner) for learner in waiting}
        exports = _exports(secrets)
        self._host.call("write_files", files={f"{name}.json": json.dumps(secrets) for name in names.values()})
        # Readable by the container's user; the parent folder is closed to others.
        files = {name + SECRETS_SUFFIX: exports for name in names.values()}
        self._host.call("write_files", files=files, mode=0o644)
        return names

    def _create(self, learner: int, filling: PlanValues, slots: tuple[str, ...], secrets: str) -> None:
        """Create a container; if the engine's limits are not known, start it to find out which it can raise."""
        plan = self._plan.of(learner)
        planned = dict(plan.native["container"])
        entries = (entry.partition("=") for entry in planned["Env"])
        planned["Env"] = [f"{name}={self._chosen(name, value)}" for name, _, value in entries]

        def create(limits: Sequence[str]) -> bool:
            return self._create_one(plan.name, filling.filled(planned, slots, secrets, limits), slots)

        known = self._limits.known()
        if known is None:
            # One launch at a time: others would remove these trial containers.
            with self._limits.lock():
                known = self._limits.known()
                if known is None:
                    self._try_limits(learner, create)
                    return
        create(known)

    def _try_limits(self, learner: int, create: Callable[[Sequence[str]], bool]) -> None:
        name = self._plan.of(learner).name
        for limits in tries():
            if not create(limits):
                continue  # a launch that was cut off has started it with limits that come later
            try:
                self._engine.ask("POST", f"containers/{name}/start")
            except EngineRefused as error:
                if is_refused(error.message) and limits:
                    self._engine.remove(name)
                    continue
                self._write_start_failure(learner, error)
                return
            if self._links([learner]):
                # Its mounts have no data yet, so it is created again; no command has run in it.
                self._engine.remove(name)
                create(limits)
            self._limits.remember(limits)
            return

    def _create_one(self, name: str, document: Mapping[str, Any], slots: Sequence[str]) -> bool:
        """Create a container; one from a launch that was cut off is kept if it is equal or runs, else replaced.

        Returns:
            Whether the container is equal to the document: not one that runs with other limits.

        Raises:
            LaunchRefused: the engine refuses the configuration.
        """
        try:
            return self._engine.ensure(name, document, slots, self._request.attempt.home)
        except NameTaken as error:
            raise _refused(taken(name)) from error
        except EngineRefused as error:
            raise _refused(refusal(error, image_of(self._request))) from error

    def _make_network(self, name: str) -> None:
        try:
            self._engine.create_network(name, labels(self._request.attempt, 0, self._request.owner))
        except EngineRefused as error:
            if no_addresses(error):
                raise SlotsBusy(
                    "waits for a network: the container engine has no addresses left for another one",
                    hint="docker network prune removes those that nothing uses.",
                ) from error
            raise RunnerError(f"The network {name} cannot be made: {error.message}") from error

    def _clear(self, waiting: Sequence[int]) -> None:
        """Remove the containers and the network of learners that were not started."""
        attempt = self._request.attempt
        with contextlib.suppress(FabricError):
            for learner in waiting:
                facts = self._host.call("learner", folder=str(self._attempt.learner(learner).path))
                if not facts["alive"]:
                    self._engine.remove_of(attempt.home, self._plan.of(learner).name)
            if network := network_name(attempt):
                self._engine.remove_network(attempt.home, network)


def _variables(filling: PlanValues) -> dict[str, str]:
    """Return what the agents have in their environment beside the host's."""
    return {"FABRIC_ENVIRONMENT": filling.environment.key} if filling.environment else {}


def _exports(secrets: Mapping[str, str]) -> str:
    """Return the shell text of secrets for containers.

    Raises:
        LaunchRefused: a shell cannot hold them.
    """
    try:
        return render_secrets(secrets)
    except ValueError as error:
        raise LaunchRefused(f"The secrets cannot be passed to the job: {error}.", code="C103") from error


def _refused(reason: Reason) -> RunnerError:
    """Return the error with a reason why a container was not created; a retry helps with a fault of the platform."""
    text, code, hint = reason
    return RunnerError(text) if code.startswith("S") else LaunchRefused(text, hint=hint, code=code)
