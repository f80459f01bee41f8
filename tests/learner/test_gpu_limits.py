"""What a host's policy lets people, homes, sweeps and jobs with a label hold and use; how long GPUs were held."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.learner.lease_holders import ANNA, BERT, a_learner_whose_taker_is_gone, a_process
from tests.learner.waiting_jobs import WaitingHome, take
from tests.stubs import pretend
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.platform import leases, system
from workbench.learner.queue import gpu_use
from workbench.learner.queue.entries import (
    QueueEntry,
    entry_of,
    group_mark,
    label_mark,
    marks_in,
    marks_text,
    read_entries,
)
from workbench.learner.queue.gpu_use import Use, read_uses, record_use
from workbench.learner.queue.limits import Group, Held, home_group, label_group, person_group, sweep_group
from workbench.learner.queue.line import HostQueue, LeaseReading, held_by_group
from workbench.learner.queue.order import FreeGpus, turns
from workbench.learner.queue.policy import BadPolicy, parse_policy

VISION = label_mark("team=vision")
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


@pytest.fixture
def folder() -> Iterator[str]:
    """The folder of leases, which other people reach, too."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        leases.make_folder(f"{made}/leases")
        yield f"{made}/leases"


def entry(job: str, gpus: int = 1, *, person: int = 1, home: str = "", labels: str = "") -> QueueEntry:
    facts = {"home": home or f"home-of-{person}", "job": job, "gpus": gpus, "since_us": ord(job[0])}
    found = entry_of(person, {**facts, "labels": labels}, DAY_US)
    assert found is not None
    return found


def outcome(
    entries: list[QueueEntry], policy: str, held: Mapping[Group, Held] | None = None, gpus: int = 8
) -> dict[str, str]:
    """Return for each job which limit keeps it waiting; those that start have none."""
    found = turns(entries, FreeGpus(gpus, whole_free=gpus), policy=parse_policy(policy), held=held or {})
    return {key[2]: "starts" if turn.start else turn.limit for key, turn in found.items()}


# The policy


def test_a_policy_limits_people_homes_and_labels() -> None:
    found = parse_policy(
        "max_gpu_hours = 48.5\n[homes]\nmax_gpus = 2\n"
        '[labels."team=vision"]\nmax_jobs = 3\n[people.anna]\nmax_gpus = 8\n'
    )

    assert found.everybody.max_gpu_hours == 48.5
    assert (found.limits("anna").max_gpus, found.limits("anna").max_gpu_hours) == (8, 48.5)
    assert (found.home.max_gpus, found.labels["team=vision"].max_jobs) == (2, 3)
    assert found.counts_hours
    assert not parse_policy("max_gpus = 1").counts_hours


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[homes]\nweight = 2", r"weight is not a key of \[homes\]"),
        ('[labels."a=b"]\npolicy = "priority"', r"policy is not a key of \[labels\]"),
        ("[labels.vision]\nmax_gpus = 2", r'a label is written as \[labels."NAME=VALUE"\]'),
        ("[homes.mine]\nmax_gpus = 2", "line 1, is not understood"),
        ('max_gpu_hours = "many"', "max_gpu_hours is a number"),
        ("[homes]\nmax_gpus = 1.5", "max_gpus is a whole number"),
    ],
)
def test_what_is_not_understood_is_named(text: str, why: str) -> None:
    with pytest.raises(BadPolicy, match=why):
        parse_policy(text)


# The order


def test_a_homes_limit_holds_for_each_home_of_a_person() -> None:
    entries = [entry("a", home="one"), entry("b", home="one"), entry("c", home="two")]

    found = outcome(entries, "[homes]\nmax_gpus = 1")

    assert found == {"a": "starts", "b": "the host gives a home of fabric 1 GPU at once", "c": "starts"}


def test_nobody_speaks_for_the_home_of_another_person() -> None:
    entries = [entry("a", person=1, home="shared"), entry("b", person=2, home="shared")]

    assert outcome(entries, "[homes]\nmax_jobs = 1") == {"a": "starts", "b": "starts"}


def test_a_labels_limit_holds_for_all_people_together() -> None:
    entries = [entry("a", person=1, labels=VISION), entry("b", person=2, labels=VISION), entry("c", person=2)]

    found = outcome(entries, '[labels."team=vision"]\nmax_gpus = 1')

    why = "the host gives jobs with the label team=vision 1 GPU at once"
    assert found == {"a": "starts", "b": why, "c": "starts"}


def test_what_a_label_holds_counts() -> None:
    held = {label_group(VISION): Held(gpus=3, jobs=1)}

    found = outcome([entry("a", 2, labels=VISION)], '[labels."team=vision"]\nmax_gpus = 4', held)

    assert found == {"a": "the host gives jobs with the label team=vision 4 GPUs at once"}


@pytest.mark.parametrize(("used", "is_over"), [(23.9, False), (24.0, True)])
def test_who_has_used_the_gpu_hours_of_a_day_waits_and_holds_nobody_up(used: float, is_over: bool) -> None:
    entries = [entry("a", 8, person=1), entry("b", 8, person=2)]

    found = outcome(entries, "max_gpu_hours = 24", {person_group(1): Held(gpu_hours=used)})

    why = "the host gives a person 24 GPU-hours within 24 hours, which are used"
    assert found == ({"a": why, "b": "starts"} if is_over else {"a": "starts", "b": ""})


def test_marks_do_not_show_the_labels_and_what_is_none_is_left_out() -> None:
    text = marks_text({"team": "vision", "secret": "project"})

    assert set(text.split()) == {VISION, label_mark("secret=project")}
    assert marks_in(f"{VISION} ../../x {'a' * 16}! {'b' * 17} 7") == (VISION,)
    assert marks_in(7) == ()
    assert marks_in(f"{VISION} {VISION}") == (VISION,), "it counts once"
    assert len(marks_in(marks_text({str(number): "x" for number in range(50)}))) == 16


# What was used


def used_file(folder: str, *lines: object) -> Path:
    path = Path(folder) / f"used-{os.geteuid()}"
    path.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in lines))
    path.chmod(0o644)
    return path


def line(begin: int, end: int, gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"since_us": begin, "until_us": end, "gpus": gpus, **more}


def test_hours_are_those_of_the_last_day() -> None:
    now = 10 * DAY_US
    uses = [
        Use(1, now - 2 * HOUR_US, now - HOUR_US, 3, "", ()),
        Use(1, now - DAY_US - HOUR_US, now - DAY_US + HOUR_US, 2, "", ()),
        Use(1, now - 3 * DAY_US, now - 2 * DAY_US, 8, "", ()),
        Use(1, now + HOUR_US, now + 2 * HOUR_US, 8, "", ()),
    ]

    assert [use.hours(now) for use in uses] == [3.0, 2.0, 0.0, 0.0]


def test_what_a_process_held_is_recorded_with_its_home_and_labels(folder: str) -> None:
    text = json.dumps({"job": "training-a", "home": "one", "labels": VISION})
    lease = leases.take(["GPU-1", "GPU-2", "GPU-3"], folder, text)
    assert lease is not None
    before = system.now_us()

    record_use(["GPU-1", "GPU-2"])

    (use,) = read_uses(folder)
    assert (use.person, use.gpus, use.home, use.labels) == (os.geteuid(), 2, "one", (VISION,))
    assert use.since_us <= before <= use.until_us
    lease.release()
    record_use(["GPU-1", "GPU-2"])
    assert len(read_uses(folder)) == 1, "it holds nothing any more"


def test_garbage_and_torn_lines_say_nothing(folder: str) -> None:
    good = line(1, 2, home="one")
    used_file(
        folder, "{}\n", "[1]\n", "nonsense\n", line(1, 2, gpus=-1), line(1, 1 << 63), good, '{"since_us": 1,'
    )

    assert [use.home for use in read_uses(folder)] == ["one"]


def test_lines_that_count_no_more_are_removed_from_a_long_file(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_use, "PRUNED_BYTES", 100)
    now = system.now_us()
    used_file(
        folder, line(now - 3 * DAY_US, now - 2 * DAY_US, home="old"), line(now - HOUR_US, now, home="new")
    )
    lease = leases.take(["GPU-1"], folder, '{"home": "latest"}')
    assert lease is not None

    record_use(["GPU-1"])

    assert [use.home for use in read_uses(folder)] == ["new", "latest"]
    lease.release()


def test_a_file_that_others_made_or_may_write_is_neither_read_nor_written(
    folder: str, tmp_path: Path
) -> None:
    lease = leases.take(["GPU-1"], folder, "{}")
    assert lease is not None
    path = Path(folder) / f"used-{os.geteuid()}"
    other = tmp_path / "other"
    other.write_text("")
    path.symlink_to(other)
    record_use(["GPU-1"])
    assert other.read_text() == ""
    path.unlink()
    os.link(other, path)
    record_use(["GPU-1"])
    assert other.read_text() == ""
    path.unlink()
    used_file(folder, line(1, 2)).chmod(0o666)
    record_use(["GPU-1"])

    assert read_uses(folder) == []
    (Path(folder) / "used-999999").write_text(json.dumps(line(1, 2)) + "\n")
    assert read_uses(folder) == [], "its owner is somebody else than its name says"
    lease.release()


def test_nobody_writes_down_what_another_has_used(folder: str) -> None:
    path = Path(folder) / f"used-{ANNA}"

    def puts_it_in_the_way() -> None:
        path.write_text(json.dumps(line(1, 2)) + "\n")

    with a_process(puts_it_in_the_way, BERT):
        assert path.exists()
        assert read_uses(folder) == []


def test_a_disk_without_room_and_a_folder_that_is_gone_raise_nothing(folder: str) -> None:
    lease = leases.take(["GPU-1"], folder, "{}")
    assert lease is not None
    shutil.rmtree(folder)

    record_use(["GPU-1"])

    assert read_uses(folder) == []
    lease.release()


def test_a_reader_who_keeps_the_file_locked_keeps_nobody_from_adding_to_it(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.take(["GPU-1"], folder, "{}")
    assert lease is not None
    monkeypatch.setattr("workbench.learner.platform.owned_files.lock_own", lambda descriptor: False)

    record_use(["GPU-1"])

    assert len(read_uses(folder)) == 1
    lease.release()


# What is held


def test_what_is_held_and_was_used_counts_for_the_person_the_home_the_label_and_the_sweep(
    folder: str,
) -> None:
    slots = [{"uuid": f"GPU-{number}", "memory_bytes": 1, "holder": "x"} for number in range(2)]
    now = system.now_us()
    used_file(folder, line(now - 2 * HOUR_US, now - HOUR_US, 3, home="one", labels=VISION))
    me = os.geteuid()
    text = json.dumps({"job": "training-a", "home": "one", "labels": VISION, "group": group_mark("s")})

    with a_learner_whose_taker_is_gone(folder, ["GPU-0", "GPU-1"], text, me):
        found = held_by_group(LeaseReading(folder, slots).holdings(), read_uses(folder))

    for group in (person_group(me), home_group(me, "one"), label_group(VISION)):
        assert found[group]._replace(gpu_hours=0.0) == Held(gpus=2, jobs=1)
        assert found[group].gpu_hours == pytest.approx(3.0, abs=0.1)
    assert found[sweep_group(me, group_mark("s"))].gpus == 2


def test_a_label_or_sweep_in_a_text_that_anybody_may_have_written_counts_for_nobody(folder: str) -> None:
    lease = leases.take(["GPU-0"], folder, "{}")
    assert lease is not None
    for claim in Path(folder).glob("holder-*"):
        claim.unlink()
    (Path(folder) / "GPU-0").write_text(json.dumps({"owner": "me", "labels": VISION, "group": VISION}))

    slots = [{"uuid": "GPU-0", "memory_bytes": 1, "holder": "x"}]
    found = held_by_group(LeaseReading(folder, slots).holdings())

    assert not {label_group(VISION), sweep_group(os.geteuid(), VISION)} & found.keys()
    lease.release()


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if os.getuid() != 0:
        pytest.skip("only root can write a policy")
    path = tmp_path / "policy.toml"
    monkeypatch.setattr("workbench.learner.queue.policy.POLICY_FILE", str(path))
    return path


def test_a_host_follows_the_limit_of_hours(folder: str, policy: Path) -> None:
    policy.write_text("max_gpu_hours = 2")
    now = system.now_us()
    slots = [{"uuid": "GPU-0", "memory_bytes": 1}]
    queue, wanted = HostQueue(), {"job": "mine", "gpus": 1}
    assert queue.turn(folder, slots, "one", wanted)["start"]

    used_file(folder, line(now - HOUR_US, now, 2))

    found = queue.turn(folder, slots, "one", wanted)
    why = "the host gives a person 2 GPU-hours within 24 hours, which are used"
    assert (found["start"], found["limit"]) == (False, why)
    queue.close()


# Real learners


@pytest.fixture
def home(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WaitingHome]:
    """A home at a host with two GPUs."""
    pretend(clean_environment / "gpus", monkeypatch).add("GPU-1").add("GPU-2")
    found = WaitingHome(clean_environment / "home")
    yield found
    found.clear()


def uses() -> list[Use]:
    return read_uses(os.environ["FABRIC_LEASES"])


def test_a_learner_that_ends_leaves_what_it_has_used(home: WaitingHome) -> None:
    job = home.wait("true", gpus=2)
    job.until_over()

    (use,) = until(uses)
    state = job.state()
    assert (use.person, use.gpus, use.home) == (os.geteuid(), 2, home.uuid)
    assert use.since_us <= state["started_us"] <= state["ended_us"] <= use.until_us


def test_where_the_guard_is_killed_the_scribe_says_what_was_used(home: WaitingHome) -> None:
    job = home.wait(NAP + "echo ready; while :; do nap 0.1; done")
    os.kill(job.until_running()["pid"], signal.SIGKILL)
    job.until_over()

    (use,) = until(uses)
    assert (use.gpus, use.home) == (1, home.uuid)


def test_a_waiter_lets_those_wait_whose_label_has_all_that_it_may(home: WaitingHome, policy: Path) -> None:
    policy.write_text('[labels."team=vision"]\nmax_gpus = 1')
    preparation = ("from workbench.learner.queue import policy", f"policy.POLICY_FILE = {str(policy)!r}")
    busy = take("GPU-1", "GPU-2")
    end = home.folder / "end"
    jobs = [home.job(f"{NAP}while [ ! -e {end} ]; do nap 0.05; done", gpus=1) for _ in range(2)]
    for job in jobs:
        arguments = home.arguments(job)
        arguments["ticket"]["lease"]["labels"] = VISION
        home.operations.call("hand_over", {**arguments, "argv": home.argv_with(*preparation)})

    busy.release()
    jobs[0].until_running()

    why = "the host gives jobs with the label team=vision 1 GPU at once"
    until(lambda: home.turns()[jobs[1].id]["limit"] == why, lambda: str(home.turns()))
    assert jobs[1].waits
    end.touch()
    jobs[1].until_over()


def test_a_waiter_shares_a_persons_gpus_among_sweeps_by_their_weights(
    home: WaitingHome, policy: Path
) -> None:
    """Nobody is connected: what a sweep holds is in the leases, and the weight in what waits."""
    policy.write_text('policy = "fair_share"')
    preparation = ("from workbench.learner.queue import policy", f"policy.POLICY_FILE = {str(policy)!r}")
    busy = take("GPU-1", "GPU-2")
    ends = {name: home.folder / name for name in ("a1", "a2", "b1", "b2")}
    jobs = {}
    for position, (name, end) in enumerate(ends.items()):
        jobs[name] = home.job(f"{NAP}while [ ! -e {end} ]; do nap 0.05; done", gpus=1)
        # A ticket of an older fabric says none.
        weight: dict[str, Any] = {"weight": 3.0} if name.startswith("b") else {}
        arguments = home.arguments(jobs[name], position=float(position), **weight)
        arguments["ticket"]["lease"]["group"] = group_mark(name[0])
        home.operations.call("hand_over", {**arguments, "argv": home.argv_with(*preparation)})

    busy.release()
    for name in ("a1", "b1"):
        jobs[name].until_running()
    assert jobs["a2"].waits and jobs["b2"].waits
    ends["b1"].touch()

    jobs["b2"].until_running()
    assert jobs["a2"].waits
    for end in ends.values():
        end.touch()
    jobs["a2"].until_over()


def test_a_weight_that_is_changed_is_the_entrys_and_a_lease_keeps_the_sweep(home: WaitingHome) -> None:
    busy = take("GPU-1", "GPU-2")
    job = home.job(gpus=1)
    arguments = home.arguments(job, weight=2.0)
    arguments["ticket"]["lease"]["group"] = group_mark("s")
    home.operations.call("hand_over", arguments)
    (waits,) = read_entries(os.environ["FABRIC_LEASES"])
    assert (waits.weight, waits.group) == (2.0, group_mark("s"))
    entry = {"job": job.id, "priority": 50, "position": 0.0, "tries": 0}

    home.turns(handed_over=[{**entry, "weight": 0.5}])

    until(lambda: [one.weight for one in read_entries(os.environ["FABRIC_LEASES"])] == [0.5])
    busy.release()
    job.until_over()
