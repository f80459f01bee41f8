"""Several hosts as one backend: what is asked of all, what one that is away leaves possible, and what a job stores."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from backends.contract.absent_host import AbsentHost
from backends.contract.host import Backend, BackendOptions, Host
from backends.contract.host_group import asked_together, member_options, opened_group
from backends.multinode.backend import MultiNodeBackend
from tests.support.waiting import patience, until
from workbench.errors import BackendUnreachable, ConfigError, FabricError, NeedsLogin, UsageError


def _member(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "type": "ssh", "address": f"ssh://{name}", "options": options}


def _group(*members: dict[str, Any]) -> MultiNodeBackend:
    name = "+".join(one["name"] for one in members)
    return MultiNodeBackend(BackendOptions(name, "multinode", "", {"members": list(members)}))


def test_a_job_stores_each_member_as_a_job_there_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    group = _group(_member("one", root="/data"), _member("two"))

    frozen = group.frozen("multinode-process")
    alone = [member.frozen("process") for member in group.members.values()]
    assert member_options(frozen) == alone
    assert alone[0].options == {"root": "/data", "agent": "/run/agent"}


def test_the_runners_of_each_host_mean_those_of_the_group() -> None:
    group = _group(_member("one"), _member("two"))

    named = [group.runner_named(name) for name in ("process", "container", "pod", "")]
    assert named == ["multinode-process", "multinode-container", "pod", ""]


def test_fewer_learners_than_hosts_are_words_that_do_not_fit() -> None:
    refusal = _group(_member("one"), _member("two")).why_not_learners(1, 0)

    assert isinstance(refusal, UsageError)
    assert (refusal.message, refusal.hint) == (
        "one+two is 2 hosts, and the job has 1 learner",
        "--set learners=2 has one at each",
    )


def test_each_host_is_asked_for_the_gpus_of_its_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    group = _group(_member("one"), _member("two"))
    asked: dict[str, int] = {}

    def why_not(member: Backend, count: int) -> FabricError | None:
        asked[member.name] = count
        return BackendUnreachable("it has 4 GPUs") if count > 4 else None

    for member in group.members.values():
        monkeypatch.setattr(member, "why_not_gpus", lambda count, member=member: why_not(member, count))

    refusal = group.why_not_learners(5, 2)
    assert asked == {"one": 6, "two": 4}
    assert refusal is not None
    assert refusal.message == "one: it has 4 GPUs"


def test_a_setting_of_one_host_that_is_wrong_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"internal_address of two is '10\.0\.0\.1:22'"):
        _group(_member("one"), _member("two", internal_address="10.0.0.1:22"))
    for address in ("10.0.0.1", "gpu-1.lab", "fe80::1%eth0", "::1"):
        _group(_member("one", internal_address=address), _member("two"))
    with pytest.raises(ConfigError, match="names no hosts"):
        MultiNodeBackend(BackendOptions("pair", "multinode"))


def test_a_host_that_is_away_raises_why_and_leaves_the_others_open() -> None:
    here = cast(Host, AbsentHost(FabricError("never asked")))
    group = opened_group({"one": here, "two": BackendUnreachable("two: no route to host", hint="later")})

    assert group.hosts["one"] is here
    away = group.hosts["two"]
    assert not group.lost
    for ask in (lambda: away.call("inventory"), lambda: away.folder("h"), lambda: away.fetch("/", [], print)):
        with pytest.raises(BackendUnreachable, match="two: no route to host") as raised:
            ask()
        assert raised.value.hint == "later"
    group.close()

    with pytest.raises(BackendUnreachable, match="two: no route"):
        opened_group({"two": BackendUnreachable("two: no route to host")})


def test_what_a_host_raises_names_it_once() -> None:
    def unreachable(text: str) -> Any:
        raise BackendUnreachable(text)

    def locked() -> Any:
        raise NeedsLogin("needs login: `fabric backend login box3`")

    found = asked_together(
        {
            "box1": lambda: unreachable("no route to host"),
            "box2": lambda: unreachable("box2 does not answer"),
            "box3": locked,
            "box4": lambda: dict[str, str]()["nothing"],
        }
    )
    assert [str(one) for one in found.values()] == [
        "box1: no route to host",
        "box2 does not answer",
        "needs login: `fabric backend login box3`",
        "box4: KeyError: 'nothing'",
    ]


def test_what_was_opened_before_no_thread_could_start_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, both_closed, late = threading.Event(), threading.Event(), []
    start = threading.Thread.start

    def take(answer: str) -> None:
        late.append(answer)
        if len(late) == 2:
            both_closed.set()

    def slow() -> str:
        assert goes_on.wait(patience())
        return "slow"

    def refused(thread: threading.Thread) -> None:
        if thread.name == "ask three":
            until(lambda: not any(one.name == "ask one" for one in threading.enumerate()))
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError):
        asked_together({"one": lambda: "quick", "two": slow, "three": lambda: "never"}, late=take)
    goes_on.set()
    assert both_closed.wait(patience())
    assert late == ["quick", "slow"]


def test_hosts_that_all_hang_are_waited_for_so_long() -> None:
    goes_on = threading.Event()

    found = asked_together(
        {"one": lambda: goes_on.wait(patience()), "two": lambda: goes_on.wait(patience())},
        deadline_seconds=0.01,
    )
    goes_on.set()
    assert [str(one) for one in found.values()] == ["one has not answered yet", "two has not answered yet"]


def test_a_host_that_hangs_is_not_waited_for_once_another_has_answered() -> None:
    goes_on, late = threading.Event(), []
    came = threading.Event()

    def hang() -> str:
        assert goes_on.wait(patience())
        return "after all"

    def take(answer: str) -> None:
        late.append(answer)
        came.set()

    found = asked_together({"one": lambda: "at once", "two": hang}, patience_seconds=0.01, late=take)
    assert found["one"] == "at once"
    assert str(found["two"]) == "two has not answered yet"

    goes_on.set()
    assert came.wait(patience())
    assert late == ["after all"]
