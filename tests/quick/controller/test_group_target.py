"""What a group of hosts asks each of them for its jobs: their places, who makes room, and a host that is away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.contract.absent_host import AbsentHost
from backends.contract.host import SHARE_NAMES, BackendOptions
from tests.support.waiting import patience, until
from workbench.controller.decide.scheduler import LinedUpJob
from workbench.controller.runtime import connections
from workbench.controller.runtime.connections import SharedConnections, SharedLine
from workbench.controller.targets import opener
from workbench.controller.targets.opener import GroupStanding, GroupTarget, LineUp
from workbench.errors import BackendUnreachable
from workbench.learner.host import operations
from workbench.learner.host.operations import HostOperations
from workbench.learner.platform import leases
from workbench.learner.platform.system import now_us
from workbench.learner.queue import line as host_line
from workbench.learner.queue.entries import QueueEntry, read_entries
from workbench.learner.queue.line import HostQueue
from workbench.store.db.rows import TargetRef

HOME = "00000000-0000-0000-0000-00000000000a"
OTHER = "00000000-0000-0000-0000-00000000000b"
PAIR = LinedUpJob("pair", gpus=2, each=1, priority=70)
LINE = LineUp((PAIR,))
ASKED = '{"owner": "me", "job": "low", "attempt": 1, "priority": 50, "preemption": "asked", "preemption_seconds": 300}'


class Box(AbsentHost):
    """A host with one GPU and a real queue, which notes who lines up."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(BackendUnreachable(name))
        self.leases = str(folder)
        self.is_busy = self.is_lost = False
        self.line_ups = 0
        self.operations = HostOperations()
        self.gpu = f"GPU-{name}"

    @property
    def lost(self) -> bool:
        return self.is_lost

    def clock_ahead_us(self) -> int:
        return 0

    def folder(self, home_uuid: str) -> str:
        return self.leases

    def call(self, operation: str, **asked: Any) -> Any:
        if self.is_lost:
            raise BackendUnreachable("gone")
        self.line_ups += bool(asked["waiting"])
        return self.operations.call(operation, {**asked, "leases_folder": self.leases})

    def close(self) -> None:
        """Keep the entries: it is the host that is away."""

    def machine(self) -> dict[str, Any]:
        slot = {"uuid": self.gpu, "index": 0, "model": "T", "memory_bytes": 1}
        return {
            "cpus": 16,
            "time_us": now_us(),
            "slots": [{**slot, "holder": "x"} if self.is_busy else slot],
        }

    def entries(self) -> dict[str, QueueEntry]:
        return {entry.job: entry for entry in read_entries(self.leases)}

    def starts_another(self, reader: HostQueue) -> bool:
        """Say whether somebody else with a lower priority may take its GPU."""
        wanted = {"job": "other", "gpus": 1, "each": 1, "priority": 10}
        return bool(reader.turn(self.leases, self.machine()["slots"], OTHER, wanted)["start"])


@dataclass
class World:
    """Two hosts, and how to open them."""

    boxes: dict[str, Box]
    away: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By name: what a try to open a host that is away does, instead of opening it."""

    def open(self, name: str) -> Box:
        self.away.get(name, lambda: None)()
        return self.boxes[name]

    def target(self, *names: str) -> GroupTarget:
        members = [{"name": name, "type": "ssh", "address": name} for name in names or self.boxes]
        return GroupTarget(
            TargetRef("pair", "multinode", "multinode-process", "", {"members": members}), HOME
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    boxes = {}
    for name in ("box1", "box2"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o1777)
        boxes[name] = Box(name, tmp_path / name)
    made = World(boxes)
    machines = {box.leases: box for box in boxes.values()}
    monkeypatch.setattr(operations, "inventory", lambda folder: machines[folder].machine())
    monkeypatch.setattr(
        "backends.registry.load_backend", lambda one: SimpleNamespace(open=lambda: made.open(one.name))
    )
    monkeypatch.setattr(opener, "SHARED", SharedConnections())
    monkeypatch.setattr(connections, "HELD_SECONDS", 0.0)
    monkeypatch.setattr(opener, "PATIENCE_SECONDS", patience())
    monkeypatch.setattr(connections, "REOPEN_SECONDS", 0.0)
    yield made
    made.away.clear()
    for box in boxes.values():
        box.operations.close()


def _refuse() -> None:
    raise BackendUnreachable("no route to host")


def test_a_job_keeps_its_time_at_every_host_while_one_of_them_is_away(world: World) -> None:
    box1, box2 = world.boxes.values()
    launched = LinedUpJob("launched", gpus=2, each=1, priority=50)
    target = world.target()
    target.measure("t", LineUp((PAIR, launched)))
    since_us = box1.entries()["pair"].since_us

    box2.is_lost = True
    assert target.lost
    with pytest.raises(BackendUnreachable, match="box2"):
        target.measure("t", LineUp((PAIR,), keep=("launched",)))
    assert list(box1.entries()) == ["launched"], "nobody waits there for one that cannot start"

    world.away["box2"] = _refuse
    asked = box1.line_ups
    with pytest.raises(BackendUnreachable, match="box2: no route"):
        world.target().measure("t", LineUp((PAIR,), keep=("launched",)))
    assert box1.line_ups == asked, "it does not enter the line for an instant"

    world.away.clear()
    box2.is_lost = False
    world.target().measure("t", LineUp((PAIR,), keep=("launched",)))
    assert {box.entries()["pair"].since_us for box in (box1, box2)} == {since_us}
    assert "launched" in box1.entries()


def test_a_job_has_one_time_at_all_hosts_though_one_of_them_failed_when_it_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box2 = world.boxes["box2"]
    with monkeypatch.context() as failing:
        failing.setattr(box2, "call", lambda *_, **__: _refuse())
        with pytest.raises(BackendUnreachable, match="no route"):
            world.target().measure("t", LINE)
    assert not box2.entries()

    world.target().measure("t", LINE)

    assert len({box.entries()["pair"].since_us for box in world.boxes.values()}) == 1


def test_a_job_that_comes_back_waits_since_the_same_time_where_a_host_has_forgotten_it(world: World) -> None:
    box1, box2 = world.boxes.values()
    target = world.target()
    target.measure("t", LINE)
    box2.operations.close()  # its connection is gone, and its file is there
    box2.operations = HostOperations()

    target.measure("t", LineUp(()))
    assert not box1.entries()
    target.measure("t", LINE)

    assert len({box.entries()["pair"].since_us for box in (box1, box2)}) == 1


def test_a_host_that_drops_packets_is_tried_while_the_others_are_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "PATIENCE_SECONDS", 0.0)
    goes_on = threading.Event()
    tries = []

    def hang() -> None:
        tries.append(1)
        assert goes_on.wait(patience())

    world.away["box2"] = hang
    target = world.target()
    assert [target.lost for _ in range(15)] == [False] * 15
    assert len(tries) <= 2

    goes_on.set()
    until(lambda: target.lost)
    target.close()


def test_what_a_host_that_is_away_says_meanwhile_is_its_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "PATIENCE_SECONDS", 0.0)
    goes_on = threading.Event()

    def hang() -> None:
        assert goes_on.wait(patience())
        _refuse()

    world.away["box2"] = hang
    target = world.target()
    with pytest.raises(BackendUnreachable, match="box2 has not answered yet"):
        target.measure("t", LINE)
    goes_on.set()

    def reason() -> str:
        assert not target.lost
        with pytest.raises(BackendUnreachable) as raised:
            target.measure("t", LINE)
        return str(raised.value)

    until(lambda: reason() == "box2: no route to host")


def test_a_host_does_not_pass_a_job_for_which_another_one_is_busy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box1, box2 = world.boxes.values()
    box2.is_busy = True
    target, reader = world.target(), HostQueue()
    monkeypatch.setattr(opener, "RENEW_SECONDS", float("inf"))
    target.measure("t", LINE)
    target.measure("t", LINE)
    assert not box1.starts_another(reader)

    monkeypatch.setattr(host_line, "OFFER_SECONDS", 0.0)
    until(lambda: box1.starts_another(reader))
    monkeypatch.setattr(opener, "RENEW_SECONDS", 0.0)
    target.measure("t", LINE)
    target.measure("t", LINE)
    assert not box1.starts_another(reader)
    reader.close()


def test_a_job_behind_others_at_one_host_is_passed_at_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box1, box2 = world.boxes.values()
    box2.is_busy = True
    target, first = world.target(), HostQueue()
    ahead = {"job": "ahead", "gpus": 1, "each": 1, "priority": 90}
    first.hold(box2.leases, OTHER, ahead)
    monkeypatch.setattr(opener, "RENEW_SECONDS", 0.0)

    for _ in range(3):
        target.measure("t", LINE)
    assert box1.entries()["pair"].tries == 0
    first.leave(box2.leases, OTHER, "ahead")
    for _ in range(3):
        target.measure("t", LINE)
    assert box1.entries()["pair"].tries > 0
    first.close()


def test_a_host_preempts_only_where_all_the_others_can_give_their_gpus(world: World) -> None:
    box1, box2 = world.boxes.values()
    box1.is_busy = box2.is_busy = True
    held = leases.take([box1.gpu], box1.leases, ASKED)
    firm = leases.take([box2.gpu], box2.leases, ASKED.replace("asked", "no"))
    assert held is not None and firm is not None
    target = world.target()

    for _ in range(3):
        target.measure("t", LINE)
    assert box1.entries()["pair"].preempts == ()

    firm.release()
    box2.is_busy = False
    target.measure("t", LINE)
    assert box1.entries()["pair"].preempts == ("low/1",)
    held.release()


def test_hosts_that_all_have_to_make_room_do_so(world: World) -> None:
    taken = []
    for box in world.boxes.values():
        box.is_busy = True
        taken.append(leases.take([box.gpu], box.leases, ASKED))

    world.target().measure("t", LINE)

    assert [box.entries()["pair"].preempts for box in world.boxes.values()] == [("low/1",)] * 2
    for one in taken:
        assert one is not None
        one.release()


def test_two_groups_have_the_same_order_at_all_hosts(world: World) -> None:
    box1, box2 = world.boxes.values()
    there, back = world.target("box1", "box2"), world.target("box2", "box1")
    there.measure("there", LINE)
    back.measure("back", LineUp((LinedUpJob("back", gpus=2, each=1, priority=70),)))

    times = [{job: one.since_us for job, one in box.entries().items()} for box in (box1, box2)]
    assert times[0] == times[1]
    assert times[0]["pair"] < times[0]["back"]


def test_a_host_shows_the_name_of_a_job_where_its_backend_shares_names() -> None:
    members = {
        "box1": BackendOptions("box1", "ssh", "box1", {SHARE_NAMES: "true"}),
        "box2": BackendOptions("box2", "ssh", "box2", {}),
    }
    named = LinedUpJob("pair", gpus=2, each=1, priority=50, name="mine")

    standing = GroupStanding(members)
    assert [standing.entry(named, one, 0)["name"] for one in members.values()] == ["mine", ""]


def test_who_comes_behind_a_question_that_hangs_does_not_hang(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINE_SECONDS", 0.0)
    line, goes_on, is_asked = SharedLine(), threading.Event(), threading.Event()

    class Hangs(Box):
        def call(self, operation: str, **asked: Any) -> Any:
            is_asked.set()
            goes_on.wait(patience())
            return {"turns": {}}

    host = Hangs("box3", Path(world.boxes["box1"].leases))
    first = threading.Thread(target=lambda: line.ask(host, "one", home=HOME, waiting=[]))
    first.start()
    assert is_asked.wait(patience())
    with pytest.raises(BackendUnreachable, match="has not answered"):
        line.ask(host, "two", home=HOME, waiting=[])
    goes_on.set()
    first.join()
