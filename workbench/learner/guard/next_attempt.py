"""Has the host begin the next attempt of a job whose command or guard failed, so that it goes on with the laptop off.

The guard of an attempt, or its scribe where that was killed, prepares the next one as the controller's launch would:
the same code, environment and launch document, in folders of its own, and what its container is made from, where it
has one. Then it gives it to the home's waiter, which starts it after the back-off, when its turn for GPUs and CPUs has
come. Only who has launched the attempt knows whether this is right: it has written ``restarts`` into the launch
document then.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from workbench.learner.guard.container_command import DOCUMENT, command_of
from workbench.learner.guard.container_creation import LABEL_ATTEMPT, remove_network
from workbench.learner.host.code_store import copy_code
from workbench.learner.host.unpack import unpack
from workbench.learner.journal import state
from workbench.learner.journal.launch_document import read
from workbench.learner.journal.output_search import is_free_of
from workbench.learner.platform import system
from workbench.learner.platform.engine_client import ask
from workbench.learner.platform.errors import Failure, of_os_error
from workbench.learner.platform.files import make_folders, make_pipes, open_to_all, touch, write_files
from workbench.learner.queue.allocation import CHOSEN
from workbench.learner.queue.channel import poke
from workbench.learner.queue.home_waiter import UNANSWERED, HomeWaiter

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from workbench.learner.journal.launch_document import LaunchDocument

BRIEF_SECONDS = 60.0
"""An attempt that is preempted sooner has the next one wait its back-off: whatever ends one after the other, they cost
little then."""

LONGEST_DELAY_SECONDS = 60.0
"""The longest back-off before the next attempt."""

CLAIM = "next.claim"
"""In an attempt's folder: made by the agent of that of several learners which begins the next attempt."""

_OF_THIS_ATTEMPT = ("FABRIC_GUARD", state.LOCK_VARIABLE)
"""Variables of an agent that the agents of other attempts do not get from it."""

_ENGINE_SECONDS = 5.0
"""How long an engine has to remove a network."""

_NETWORK_AGAIN_SECONDS = 0.1

_NAMED_BY_ATTEMPT = ("LEARNER_NAME_PREFIX", "MASTER_ADDR")
"""Variables of a command that hold the names of the attempt's learners."""


class FollowingAttempt:
    """The attempt after one whose command or agent has failed, or was preempted.

    Args:
        folder: the learner's folder.
        launch: its launch document, which has ``restarts``.
        secrets: the content of its file of secrets.
        is_preempted: whether it ended for a job of a higher priority: the next one is not counted, and waits no time
            unless this one has hardly run.
        is_of_platform: whether it ended by a fault of the platform: those are counted apart, with a back-off of their
            own.
        others: the same of the attempt's other learners.
    """

    def __init__(
        self,
        folder: str,
        launch: LaunchDocument,
        secrets: Mapping[str, str],
        *,
        is_preempted: bool = False,
        is_of_platform: bool = False,
        others: Sequence[FollowingAttempt] = (),
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._secrets = secrets
        self._restarts: dict[str, Any] = dict(launch.restarts or {})
        self._is_preempted = is_preempted
        self._is_of_platform = is_of_platform
        self._container: dict[str, Any] | None = self._restarts.get("container")
        self._environment = {key: value for key, value in os.environ.items() if key not in _OF_THIS_ATTEMPT}
        self._attempt_dir = os.path.dirname(folder)
        self._job_dir = os.path.dirname(self._attempt_dir)
        self._number = launch.attempt + 1
        waits = not is_preempted or _ran_seconds(folder) < BRIEF_SECONDS
        counted = self._restarts["platform"] if is_of_platform else self._restarts
        self._delay_seconds = float(counted["delay_seconds"]) if waits else 0.0
        self._begin_us = system.now_us() + int(self._delay_seconds * 1e6)
        self._names = launch.env["LEARNER_NAME_PREFIX"]
        self._of_trial: dict[str, str] = {}
        if launch.env.get("DET_EXPERIMENT_CONFIG"):
            from workbench.learner.determined_jobs import attempt_variables  # no other job has these

            self._of_trial = attempt_variables(launch.job, self._number)
        self._learners = sorted([self, *others], key=lambda one: one._launch.learner)
        for one in others:
            one._delay_seconds = self._delay_seconds

    def is_claimed(self) -> bool:
        """Take it upon this learner's agent; return False where that of another learner has done so.

        Two may see at once that all learners are over. Whoever dies with it leaves the attempt to the controller.
        """
        if len(self._learners) == 1:
            return True
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(os.path.join(self._attempt_dir, CLAIM), flags, 0o600))
        except FileExistsError:
            return False
        return True

    @property
    def is_barred(self) -> bool:
        """Whether the output has a line for which no other attempt may follow, or may have one; the controller says it.

        Who was preempted has not failed.
        """
        expressions = self._restarts.get("barred_by") or ()
        if self._is_preempted or not expressions:
            return False
        paths = [os.path.join(one._folder, "output.log") for one in self._learners]
        return not all(is_free_of(path, expressions) for path in paths)

    @property
    def followed_by(self) -> dict[str, float]:
        """What the state of the attempt before says of it: its number, and when it begins after which back-off."""
        return {
            "attempt": self._number,
            "begin_us": self._begin_us,
            "delay_seconds": self._delay_seconds,
        }

    def give_to_waiter(self) -> bool:
        """Prepare it and give it to the waiter; return False where it is certain that nobody will start it."""
        try:
            waiter = self._waiter()
            waiter.reach()
            for one in self._learners:
                one._prepare()
            if self._requests():
                return False
            waiter.give(self._ticket(), self._secrets)
        except (Failure, OSError, KeyError, TypeError, ValueError) as error:
            failure = of_os_error(error) if isinstance(error, OSError) else error
            text = failure.message if isinstance(failure, Failure) else repr(failure)
            sys.stderr.write("attempt %d is not begun from here: %s\n" % (self._number, text))
            sys.stderr.flush()
            if not (isinstance(failure, Failure) and failure.kind == UNANSWERED):
                return False
        # From here on the waiter has it, or may have it: nothing that fails takes that back.
        self._pass_stop_on()
        if self._container is not None:
            await_network_removal(self._container["config"])
        return True

    def _requests(self) -> list[dict[str, Any]]:
        """Return what was asked of the attempt's learners that ends it, a kill first."""
        folders = [one._folder for one in self._learners]
        found = [state.read_stop(folder) for folder in folders if state.is_stop(folder)]
        return sorted(found, key=lambda request: request.get("kind") != "kill")

    def _pass_stop_on(self) -> None:
        """Ask the next attempt to stop where this one was asked to meanwhile: nobody else may do so for long.

        What the controller ends by itself, as what is left of several learners, it does not mean for another attempt.
        """
        requests = [one for one in self._requests() if one.get("by") != state.BY_CONTROLLER]
        if requests:
            for one in self._learners:
                with contextlib.suppress(OSError):  # a full folder: the controller asks it again
                    state.ask_to_stop(self._moved(one._folder), requests[0])
            poke(self._launch.home)

    def _waiter(self) -> HomeWaiter:
        *program, _, _ = self._launch.document["guard"]  # ``guard`` and the folder
        home_dir = os.path.dirname(os.path.dirname(self._job_dir))
        leases_folder = str(self._restarts["ticket"]["leases_folder"])
        argv = [*program, "waiter", home_dir]
        environment = {key: value for key, value in self._environment.items() if key != "FABRIC_ENVIRONMENT"}
        return HomeWaiter(self._launch.home, home_dir, argv, environment, leases_folder)

    def _prepare(self) -> None:
        """Make the folders of a learner of the next attempt and what lies in them.

        Raises:
            Failure: something of it is not here any more, or somebody else has begun that attempt.
            OSError: it cannot be written.
        """
        if self._launch.document.get("attempt_dir") != self._attempt_dir:
            raise Failure("missing", "the home is somewhere else now")
        document = self.document()
        folder = self._moved(self._folder)
        environment = document["env"]
        self._check_environment()
        # The command may have removed what the launch had made.
        make_folders([folder, environment["LOG_DIR"], *(self._restarts.get("folders") or ())])
        lock = state.take_lock(folder)
        if lock is None:
            raise Failure("try_again", "somebody else has its lock")
        try:
            if os.path.exists(os.path.join(folder, "state.json")):
                raise Failure("try_again", "somebody else has begun it")
            touch([os.path.join(environment["JOB_STATE_DIR"], self._launch.job)])
            self._bring_code(environment["MODEL_DIR"])
            if self._container is not None:
                prepare_container(document["restarts"]["container"], folder)
            files = {os.path.join(folder, "launch.json"): json.dumps(document) + "\n"}
            packages = os.path.join(self._attempt_dir, "environment.json")
            if os.path.exists(packages):
                files[self._moved(packages)] = system.read_text(packages)
            write_files(files)
        finally:
            os.close(lock)

    def _check_environment(self) -> None:
        """See that what the command starts with is there.

        Raises:
            Failure: its Python, or what is mounted, is gone.
        """
        needed = [source for source, _ in self._links]
        if self._container is None:
            packages = state.read_object(os.path.join(self._attempt_dir, "environment.json"))
            needed.append(str(packages.get("python") or ""))
        for path in needed:
            if os.path.isabs(path) and not os.path.exists(path):
                raise Failure("missing", "%s is not there any more" % path)

    @property
    def _links(self) -> list[tuple[str, str]]:
        return [(str(source), str(name)) for source, name in self._restarts.get("links") or ()]

    def _bring_code(self, folder: str) -> None:
        """Have the code of the job in a folder, as it was submitted, with the links to what is mounted there."""
        archive, code_hash = (
            str(self._restarts.get("archive") or ""),
            str(self._restarts.get("code_hash") or ""),
        )
        if not code_hash or os.path.exists(archive):
            unpack(archive if code_hash else "", folder)
        elif not copy_code(os.path.dirname(archive), code_hash, [folder]):
            raise Failure("missing", "the code of the job is not at this host any more")
        for source, name in self._links:
            path = os.path.join(folder, name)
            make_folders([os.path.dirname(path)])
            os.symlink(source, path)

    def document(self) -> dict[str, Any]:
        """Return the launch document of the next attempt. What is chosen at a start is left to the waiter."""
        before = self._launch.document
        restarts = dict(self._restarts)
        counted = restarts
        if self._is_of_platform:
            counted = restarts["platform"] = dict(restarts["platform"])
        if not self._is_preempted:
            counted["done"] = int(counted.get("done") or 0) + 1
        if self._delay_seconds:
            counted["delay_seconds"] = min(2 * self._delay_seconds, LONGEST_DELAY_SECONDS)
        spared = ("command", "setup", "restarts")
        moved = {name: value if name in spared else self._moved(value) for name, value in before.items()}
        moved["env"] = {name: self._variable(name, value) for name, value in moved["env"].items()}
        if self._container is not None:
            following = NextContainer(self._container, self._number, self._moved, self._name, self._variable)
            restarts["container"] = following.document()
            moved.update(following.commands(moved["guard"], self._moved(self._folder)))
        return {**moved, "attempt": self._number, "slots": [], "secrets_file": None, "restarts": restarts}

    def _ticket(self) -> dict[str, Any]:
        """Return the ticket of the next attempt, from what that of the launch would have been."""
        ticket: dict[str, Any] = dict(self._restarts["ticket"])
        names = self._name(self._names)
        learners = [
            {
                "learner": one._launch.learner,
                "folder": self._moved(one._folder),
                "secrets_stem_name": "%s.%s-%d" % (self._launch.home, names, one._launch.learner - 1),
            }
            for one in self._learners
        ]
        return {
            **ticket,
            "attempt": self._number,
            "lease": {**ticket["lease"], "attempt": self._number},
            "begin_us": self._begin_us,
            "longest_seconds": self._delay_seconds,
            "environment": self._environment,
            "learners": learners,
        }

    def _variable(self, variable: str, value: str) -> str:
        """Return the value that one of the command's variables has in the next attempt."""
        if variable in _NAMED_BY_ATTEMPT:
            return self._name(value)
        if variable in self._of_trial:
            return self._of_trial[variable]
        marker = self._launch.marker
        if variable != "FABRIC_LEARNER" or not value.startswith(marker):
            return value
        launch = self._launch
        after = "%s/%s/%d/%d" % (launch.home, launch.job, self._number, launch.learner)
        return after + value[len(marker) :]

    def _name(self, text: str) -> str:
        """Return a text in which the attempt's learners are named with the next attempt's names."""
        return text.replace(self._names, _renumbered(self._names, "-a%d", self._launch.attempt))

    def _moved(self, value: Any) -> Any:
        """Return a value of the launch document with the paths of the next attempt's folders."""
        if isinstance(value, dict):
            return {name: self._moved(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._moved(one) for one in value]
        if not isinstance(value, str) or self._attempt_dir not in value:
            return value
        after = os.path.join(self._job_dir, "attempt-%d" % self._number)
        # Several paths may follow each other, as in PYTHONPATH; "attempt-1" is not the beginning of "attempt-10".
        parts = value.split(self._attempt_dir)
        return parts[0] + "".join(
            (after if part[:1] in ("", "/", ":") else self._attempt_dir) + part for part in parts[1:]
        )


def following_attempt(
    folder: str,
    launch: LaunchDocument,
    secrets: Mapping[str, str],
    *,
    is_preempted: bool,
    is_of_platform: bool = False,
) -> FollowingAttempt:
    """Return the attempt after one all of whose learners are over; the arguments are those of its last one.

    Raises:
        OSError: the launch document of another learner cannot be read.
        ValueError: it is not what one should be.
    """
    numbers = [number for number in range(1, launch.learners + 1) if number != launch.learner]
    folders = [state.learner_folder(launch, number) for number in numbers]
    others = [FollowingAttempt(one, read(one), secrets, is_preempted=is_preempted) for one in folders]
    return FollowingAttempt(
        folder, launch, secrets, is_preempted=is_preempted, is_of_platform=is_of_platform, others=others
    )


def _ran_seconds(folder: str) -> float:
    """Return how long the command of a learner ran; 0 where it never began."""
    found = state.read(folder)
    begun, ended = found.get("started_us"), found.get("ended_us")
    return (int(ended) - int(begun)) / 1e6 if begun and ended else 0.0


def _renumbered(text: str, ending: str, number: int) -> str:
    """Return a name that ends with a number with the next one."""
    before = ending % number
    if not text.endswith(before):
        raise ValueError("%s does not end with %s" % (text, before))
    return text[: -len(before)] + ending % (number + 1)


class NextContainer:
    """The container of one learner in its next attempt.

    Args:
        before: what the launch of this attempt has left under ``restarts`` as ``container``. ``config`` is what is in
            ``container.json``, with ``create``, so that an agent creates the container. ``folders`` and ``pipes`` are
            made beforehand, and where they are gone ``stores``: the job's own folders in mounted stores, by the
            store's folder. ``files`` are texts by path, which are written in the container, too, and ``open`` folders
            that the image's user may change, if it has to be let in.
        number: the next attempt's.
        move: returns a value with the paths of the next attempt's folders.
        name: returns a text with the names of the next attempt's learners.
        variable: takes the name of a variable and its value; returns the value that it has in the next attempt.
    """

    def __init__(
        self,
        before: Mapping[str, Any],
        number: int,
        move: Callable[[Any], Any],
        name: Callable[[str], str],
        variable: Callable[[str, str], str],
    ) -> None:
        self._before = before
        self._number = number
        self._move = move
        self._name = name
        self._variable = variable

    def document(self) -> dict[str, Any]:
        """Return what is left of it for the attempt after it, in the same form."""
        before = self._before
        found: dict[str, Any] = self._move(before)
        found["files"] = {self._move(path): text for path, text in before["files"].items()}
        config = found["config"]
        config["name"] = self._name(config["name"])
        # What it was prepared for has run: the image is the one that was meant.
        config["create"]["is_after"] = False
        planned, document = before["config"]["create"]["document"], config["create"]["document"]
        document["Hostname"] = config["name"]
        document["Env"] = [self._entry(entry) for entry in document["Env"]]
        document["Labels"] = {**planned["Labels"], LABEL_ATTEMPT: str(self._number)}
        host = document["HostConfig"]
        if "ExtraHosts" in host:
            host["ExtraHosts"] = [self._name(entry) for entry in planned["HostConfig"]["ExtraHosts"]]
        if network := config["create"]["network"]:
            network["earlier"] = network["name"]
            network["name"] = self._name(network["name"])
            network["peers"] = [self._name(peer) for peer in network["peers"]]
            network["labels"] = {**network["labels"], LABEL_ATTEMPT: str(self._number)}
            host["NetworkMode"] = self._name(host["NetworkMode"])
            endpoints = document["NetworkingConfig"]["EndpointsConfig"]
            aliases = [self._name(alias) for one in endpoints.values() for alias in one["Aliases"]]
            document["NetworkingConfig"] = {"EndpointsConfig": {network["name"]: {"Aliases": aliases}}}
        return found

    def commands(self, guard: Sequence[str], folder: str) -> dict[str, str]:
        """Return what the agent runs for each act, by the keys of its launch document."""
        return {act: command_of(guard, folder, act) for act in self._before["config"]["acts"]}

    def _entry(self, entry: str) -> str:
        name, equals, value = entry.partition("=")
        return name + equals + self._variable(name, value)


def await_network_removal(config: Mapping[str, Any]) -> None:
    """Remove the network of an attempt whose agents are over: an engine has addresses for some thirty.

    An engine keeps a network while a container is attached, and an agent is over once it has the exit code, a moment
    before the engine knows of the end. What the engine keeps for longer, or does not answer to, the next attempt
    removes, or the controller.
    """
    network = config["create"]["network"]
    if not network:
        return
    until = system.elapsed_seconds() + _ENGINE_SECONDS

    def ask_in_time(method: str, target: str) -> Any:
        left_seconds = max(_NETWORK_AGAIN_SECONDS, until - system.elapsed_seconds())
        return ask(config["engine"], method, target, timeout_seconds=left_seconds)

    with contextlib.suppress(OSError):
        while not remove_network(ask_in_time, network["name"]):
            if system.elapsed_seconds() + _NETWORK_AGAIN_SECONDS >= until:
                return
            time.sleep(_NETWORK_AGAIN_SECONDS)


def prepare_container(container: Mapping[str, Any], folder: str) -> None:
    """Make in a learner's folder, and beside it, what its container needs.

    Raises:
        Failure: a folder or a file is gone that it would mount.
        OSError: something cannot be made.
    """
    missing = {
        root: [name for name in names if not os.path.isdir(os.path.join(root, name))]
        for root, names in container["stores"].items()
    }
    make_folders(container["folders"], missing)
    make_pipes(container["pipes"])
    write_files(container["files"], mode=0o666)
    if container["open"]:
        open_to_all(container["open"], (), missing)
    for source in _sources(container["config"]["create"]["document"]["HostConfig"]):
        if not os.path.exists(source):
            raise Failure("missing", "%s is not there any more" % source)
    path = os.path.join(folder, DOCUMENT)
    write_files({path: json.dumps(container["config"]) + "\n"})


def _sources(host: Mapping[str, Any]) -> list[str]:
    """List the paths that a container mounts, but for those that are chosen when it starts, and volumes."""
    bound = [entry.partition(":")[0] for entry in host.get("Binds") or ()]
    mounted = [mount["Source"] for mount in host.get("Mounts") or ()]
    return [source for source in bound + mounted if source != CHOSEN and os.path.isabs(source)]
