"""The backend ``multinode``: opens several hosts at the same time, and describes them as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar, Final, Literal, TypeVar

from backends.contract.absent_host import AbsentHost, at_member
from backends.contract.host import (
    Ask,
    Backend,
    BackendOptions,
    Cluster,
    Finding,
    Host,
    HostGroup,
    Inventory,
    Node,
)
from backends.contract.host_group import (
    asked_together,
    learners_by_host,
    member_options,
    opened_group,
    too_few_learners,
)
from backends.registry import load_backend
from workbench.errors import BackendError, ConfigError, FabricError, UsageError
from workbench.formats import count

PREFIX: Final = "multinode-"
"""What the names of the runners here begin with; the rest is the runner at each host."""

Answer = TypeVar("Answer")


class MultiNodeBackend(Backend):
    """Several hosts that run the learners of one job together: each has a block of them, in the hosts' order."""

    type: ClassVar[str] = "multinode"
    opens: ClassVar[Literal["host", "cluster", "hosts"]] = "hosts"

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        members = member_options(options)
        if len(members) < 2:
            raise ConfigError(
                f"{options.name} names no hosts", hint="--backend box1+box2 puts two backends together"
            )
        self.members: Mapping[str, Backend] = {one.name: load_backend(one) for one in members}
        """By their names, in the user's order."""
        for name, member in self.members.items():
            if member.opens != "host":
                raise UsageError(
                    f"{options.name}: {name} is not a host",
                    hint="hosts alone run one job together: ssh, local",
                )

    def open(self) -> HostGroup:
        """Reach all hosts at the same time; one that does not answer is an :class:`AbsentHost`.

        Raises:
            FabricError: none of them answers.
        """
        return opened_group(self._asked(lambda member: member.open()))

    def introduce(self, ask: Ask) -> None:
        """Connect to each for the first time, one after the other: a person is asked."""
        for name, member in self.members.items():
            try:
                member.introduce(ask)
            except FabricError as error:
                raise at_member(error, name) from error

    def probe(self) -> Iterator[Finding]:
        """Check each host; each finding names its host."""

        def ask(member: Backend) -> list[Finding]:
            try:
                return list(member.probe())
            except FabricError as error:
                return [Finding("reach", error.message, "wrong", "no job can run there", error.hint)]

        for name, found in self._all(ask).items():
            yield from (dataclasses.replace(one, subject=f"{name} {one.subject}") for one in found)

    def inventory(self) -> Inventory:
        """Return the machines of all hosts, by the names of their backends."""
        with closing(self.open()) as opened:
            return self.inventory_of(opened)

    def inventory_of(self, opened: Host | Cluster | HostGroup) -> Inventory:
        """Return the machines of all hosts, over connections that are open."""
        assert isinstance(opened, HostGroup)
        hosts = opened.hosts
        found = self._all(lambda member: member.inventory_of(hosts[member.name]))
        nodes: list[Node] = []
        for name, one in found.items():
            nodes += [dataclasses.replace(node, name=name) for node in one.nodes]
        return Inventory(tuple(nodes), min(one.time_us for one in found.values()))

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options that a job stores, with each member's as a job there stores them."""
        at_host = runner.removeprefix(PREFIX)
        members = [dataclasses.asdict(member.frozen(at_host)) for member in self.members.values()]
        return dataclasses.replace(self.options, options={**self.options.options, "members": members})

    def runners(self) -> Sequence[str]:
        """Return the runners, the one with containers first where each host prefers that, too."""
        preferred = self._all(lambda member: list(member.runners())[:1])
        names = ["process", "container"]
        if all(found == ["container"] for found in preferred.values()):
            names.reverse()
        return [f"{PREFIX}{name}" for name in names]

    def runner_named(self, name: str) -> str:
        """Return the runner here that a person means who names the one of each host."""
        return f"{PREFIX}{name}" if name in ("process", "container") else name

    def why_not(self, runner: str) -> FabricError | None:
        """Return why a runner cannot be used at one of the hosts."""
        at_host = runner.removeprefix(PREFIX)
        return self._first(lambda member: member.why_not(at_host))

    def discover(self, opened: Host | Cluster | HostGroup) -> None:
        """Have each host's facts cached."""
        assert isinstance(opened, HostGroup)
        for name, member in self.members.items():
            if not isinstance(host := opened.hosts[name], AbsentHost):
                member.discover(host)

    def why_not_gpus(self, count: int) -> FabricError | None:
        """Return why the hosts can never give so many GPUs, each about the same part of them."""
        each = -(-count // len(self.members))
        return self._first(lambda member: _why_not_gpus(member, each))

    def why_not_learners(self, learners: int, gpus: int) -> FabricError | None:
        """Return why the hosts can never have so many learners, each with so many GPUs."""
        hosts = len(self.members)
        if learners < hosts:
            return too_few_learners(self.name, learners, hosts)
        shares = dict(zip(self.members, map(len, learners_by_host(learners, hosts)), strict=True))
        if not gpus:
            return None
        return self._first(lambda member: _why_not_gpus(member, gpus * shares[member.name]))

    def gpu_count(self) -> int | None:
        """Return how many GPUs there are in all, None where that of one host is not known."""
        found = self._all(lambda member: member.gpu_count()).values()
        return None if None in found else sum(one or 0 for one in found)

    def gpus_of_largest_machine(self) -> int | None:
        """Return how many GPUs the host with the most has, None where that of one host is not known."""
        found = self._all(lambda member: member.gpu_count()).values()
        return None if None in found else max(one or 0 for one in found)

    def _first(self, ask: Callable[[Backend], FabricError | None]) -> FabricError | None:
        """Return the first of the members' refusals, which names its host."""

        def asked(member: Backend) -> list[FabricError]:
            # What is returned is no failure of the question.
            refusal = ask(member)
            return [] if refusal is None else [refusal]

        for name, refusals in self._all(asked).items():
            if refusals:
                return at_member(refusals[0], name)
        return None

    def _all(self, ask: Callable[[Backend], Answer]) -> dict[str, Answer]:
        """Ask all members at the same time; return their answers by name.

        Raises:
            FabricError: of the first one that raised one; it names the host.
        """
        found = self._asked(ask)
        answers: dict[str, Answer] = {}
        for name, answer in found.items():
            if isinstance(answer, FabricError):
                raise answer
            answers[name] = answer
        return answers

    def _asked(self, ask: Callable[[Backend], Answer]) -> dict[str, Answer | FabricError]:
        return asked_together({name: partial(ask, member) for name, member in self.members.items()})


def _why_not_gpus(member: Backend, wanted: int) -> FabricError | None:
    if refusal := member.why_not_gpus(wanted):
        return refusal
    if member.type != "local":
        return None
    there = member.gpu_count() or 0
    if wanted <= there:
        return None
    return BackendError(
        f"The job asks for {count(wanted, 'GPU')} at this machine, which has {there or 'none'}.",
        hint="Ask for fewer with --gpus, or leave this machine out.",
    )
