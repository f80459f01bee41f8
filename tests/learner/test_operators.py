"""The operators that a host's policy names empty it without root; what anybody else leaves there counts for nothing."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.learner.lease_holders import ANNA, EVE, a_process, check
from workbench.learner.guard.requests import LearnerLimits
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.platform import leases
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.owned_files import replace_own
from workbench.learner.queue import operators
from workbench.learner.queue.entries import HeldEntries
from workbench.learner.queue.line import HostQueue
from workbench.learner.queue.operators import DRAIN, drain_document, drain_of, is_operator
from workbench.learner.queue.policy import BadPolicy, parse_policy
from workbench.learner.queue.preemption import PreemptionWatch

NAME = "daemon"
"""An account, and a group, that each system has."""

OPERATOR = pwd.getpwnam(NAME).pw_uid
HOME = "00000000-0000-0000-0000-00000000000a"
SLOTS = [{"uuid": "GPU-1", "memory_bytes": 1}]
WAITS = {"job": "waits", "gpus": 1, "each": 1, "priority": 50, "position": 1.0}

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root writes policies, and is somebody else")


@pytest.fixture
def folder() -> Iterator[str]:
    """The folder of leases, which other people reach, too."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        leases.make_folder(f"{made}/leases")
        yield f"{made}/leases"


@pytest.fixture(autouse=True)
def policy(folder: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's policy, which names an operator, beside root's file that empties the host."""
    path = Path(folder).parent / "policy.toml"
    path.write_text(f'operators = ["{NAME}"]')
    for name in ("queue.policy", "queue.preemption", "queue.operators", "guard.requests"):
        monkeypatch.setattr(f"workbench.learner.{name}.POLICY_FILE", str(path))
    for name in ("policy.DRAIN_FILE", "operators.DRAIN_FILE"):
        monkeypatch.setattr(f"workbench.learner.queue.{name}", str(path.parent / "drain"))
    return path


@pytest.fixture
def queue() -> Iterator[HostQueue]:
    made = HostQueue()
    yield made
    made.close()


def by(person: int, does: Callable[[], object]) -> None:
    """Do something as another person."""
    with a_process(does, person):
        pass


def ordered(folder: str, person: int, name: str = "drain-1", text: str = '{"order": "drain"}') -> None:
    """Make a file as a person, which says that the host is to be empty."""

    def make() -> None:
        descriptor = replace_own(f"{folder}/{name}", text)
        assert descriptor is not None

    by(person, make)


def watch(folder: str, consent: str = "asked") -> PreemptionWatch:
    facts = {"leases_folder": folder, "priority": 50, "preemption": consent, "preemption_seconds": 300.0}
    return PreemptionWatch(facts, "job/1")


# The policy


def test_a_policy_names_operators() -> None:
    found = parse_policy(
        'max_gpus = 2\noperators = [ "ada", "@gpu-admins" ,] # both\n[people.ada]\nweight = 2'
    )

    assert found.operators == ("ada", "@gpu-admins")
    directory = parse_policy('operators = ["@domain users", "CORP\\ada"]')
    assert directory.operators == ("@domain users", "CORP\\ada")
    assert parse_policy("operators = []").operators == parse_policy("").operators == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('operators = "ada"', "operators is a list of accounts and @groups"),
        ("operators = 1", "operators is a list of accounts and @groups"),
        ('operators = ["ada", ""]', "operators is a list of accounts and @groups"),
        ('operators = ["@"]', "operators is a list of accounts and @groups"),
        ('operators = ["ada" "bob"]', "line 1, is not understood"),
        ("operators = [ada]", "line 1, is not understood"),
        ('[people.ada]\noperators = ["ada"]', "operators is not a key of it"),
        ('max_gpus = ["ada"]', "max_gpus is a whole number"),
        ('max_priority = ["ada"]', "max_priority is a whole number"),
        ('min_run_minutes = ["ada"]', "min_run_minutes is a number"),
        ('policy = ["priority"]', "policy is one of"),
    ],
)
def test_what_a_policy_says_of_operators_and_is_not_understood_is_named(text: str, why: str) -> None:
    with pytest.raises(BadPolicy, match=why):
        parse_policy(text)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((NAME,), True), (("nobody", NAME), True), ((f"@{NAME}",), True), (("@nogroup", "nobody"), False),
        ((str(OPERATOR),), False), (("no-such-account", "@no-such-group"), False), ((), False),
    ],
)  # fmt: skip
def test_an_operator_is_one_by_account_or_group(names: tuple[str, ...], expected: bool) -> None:
    assert is_operator(OPERATOR, names) is expected
    assert not is_operator(EVE, names), "who has no account is none"


def test_whoever_is_in_a_group_is_an_operator_whatever_the_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    gid = pwd.getpwnam("nobody").pw_gid
    monkeypatch.setattr(os, "getgrouplist", lambda name, own: [own, gid] if name == NAME else [own])

    assert is_operator(OPERATOR, ("@nogroup",))
    assert not is_operator(pwd.getpwnam("games").pw_uid, ("@nogroup",))


# What an operator does


def test_an_operator_empties_a_host_and_takes_it_back(folder: str, queue: HostQueue) -> None:
    running = watch(folder)
    assert queue.line_up(folder, SLOTS, HOME, [WAITS], [])["waits"]["start"]
    assert not running.check()

    by(OPERATOR, lambda: operators.drain(folder))

    assert running.check() == f"its host is to be empty, by {NAME}"
    assert not watch(folder, "by_policy").check(), "what may not be preempted runs to its end"
    turn = queue.line_up(folder, SLOTS, HOME, [WAITS], [])["waits"]
    assert (turn["start"], turn["limit"]) == (False, f"the host is to be empty, by {NAME}")
    found = drain_of(folder, (NAME,))
    assert found is not None and turn["limit_since_us"] == found.since_us
    by(OPERATOR, lambda: operators.drain(folder))
    assert drain_of(folder, (NAME,)) == found, "it is so since it was ordered first"

    by(EVE, lambda: operators.end_drain(folder))
    assert drain_of(folder, (NAME,)) == found, "of another's order nobody takes anything back"

    by(OPERATOR, lambda: operators.end_drain(folder))
    assert not watch(folder).check()
    assert queue.line_up(folder, SLOTS, HOME, [WAITS], [])["waits"]["start"]


def test_who_is_no_operator_any_more_has_ordered_nothing(folder: str, queue: HostQueue, policy: Path) -> None:
    by(OPERATOR, lambda: operators.drain(folder))
    for text in ("", 'operators = ["games"]', "nonsense"):
        policy.write_text(text)
        assert not watch(folder).check()
        assert queue.line_up(folder, SLOTS, HOME, [WAITS], [])["waits"]["limit"] != (
            f"the host is to be empty, by {NAME}"
        )


def test_who_is_no_operator_is_refused_and_leaves_nothing(folder: str) -> None:
    def refused() -> None:
        with pytest.raises(Failure, match="not an operator of this host") as caught:
            operators.drain(folder)
        assert caught.value.kind == "not_allowed"
        assert 'operators = ["games"]' in caught.value.hint

    by(pwd.getpwnam("games").pw_uid, refused)

    assert not any(Path(folder).iterdir())


def test_root_empties_a_host_by_its_own_file_and_takes_back_what_anybody_has_ordered(
    folder: str, policy: Path
) -> None:
    roots_file = policy.parent / "drain"
    by(OPERATOR, lambda: operators.drain(folder))
    operators.drain(folder)
    found = drain_document(folder)
    assert (found["by"], found["may"]) == (str(roots_file), True), "root's comes first"

    operators.end_drain(folder)

    assert drain_document(folder)["by"] == ""
    assert not any(Path(folder).iterdir()) and not roots_file.exists()


def test_operators_that_the_host_does_not_know_are_named_and_the_policy_counts(
    folder: str, policy: Path
) -> None:
    policy.write_text(f'operators = ["no-such-account", "@no-such-group", "{NAME}"]')
    by(OPERATOR, lambda: operators.drain(folder))

    found = drain_document(folder)

    assert (found["by"], found["unknown"]) == (NAME, ["no-such-account", "@no-such-group"])


# The end of one job

JOB = "training-k3f9x2mtq"


def lease_of(job: str = JOB) -> str:
    return json.dumps({"owner": "ada@laptop", "job": job, "attempt": 2, "home": HOME})


def has_gpu(
    folder: str, person: int = EVE, gpu: str = "GPU-1", job: str = JOB
) -> AbstractContextManager[int]:
    """Have a job of a person hold a GPU."""
    return a_process(lambda: check(leases.take([gpu], folder, lease_of(job)) is not None), person)


def limits_of(folder: str, consent: str, grace_seconds: float = 30.0) -> LearnerLimits:
    """Return the limits of a learner of that job, as its guard looks at them."""
    facts = {"leases_folder": folder, "priority": 50, "preemption": consent, "preemption_seconds": 9.0}
    document = {"job": JOB, "attempt": 2, "slots": ["GPU-1"], "grace_seconds": grace_seconds}
    return LearnerLimits(LaunchDocument({**document, "preemption": facts}))


@pytest.mark.parametrize("consent", ["never", "by_policy", "asked"])
def test_an_operator_ends_the_job_of_another_person_whatever_that_agreed_to(
    folder: str, consent: str
) -> None:
    limits, later = limits_of(folder, consent), limits_of(folder, consent, 3600.0)
    with has_gpu(folder, os.getuid()):
        assert limits.exceeded() is None
        by(OPERATOR, lambda: check(operators.end_job(folder, ["GPU-1"], "k3f9x2mtq")["attempt"] == 2))

    found, bounded = later.exceeded(), limits_of(folder, consent).exceeded()

    assert found is not None and bounded is not None
    assert (found.kind, found.why["text"]) == ("halt", f"halted by {NAME}, an operator of its host")
    assert (found.grace_seconds, bounded.grace_seconds) == (300.0, 30.0), "five minutes at most"


def test_an_end_is_ordered_of_one_attempt_of_one_person(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with has_gpu(folder):
        by(OPERATOR, lambda: check(bool(operators.end_job(folder, ["GPU-1"], JOB))))

    assert operators.who_ends(folder, (NAME,), f"{JOB}/2", EVE) == NAME
    assert operators.who_ends(folder, (NAME,), f"{JOB}/3", EVE) == "", "one that follows goes on"
    assert operators.who_ends(folder, (NAME,), f"{JOB}/2", OPERATOR) == "", (
        "another person's of that name, too"
    )
    assert operators.who_ends(folder, ("games",), f"{JOB}/2", EVE) == ""
    assert not counts(folder), "the host is not to be empty"


def test_nobody_but_an_operator_ends_a_job(folder: str) -> None:
    order = json.dumps({"order": operators.END, "attempt": f"{JOB}/2", "person": ANNA})
    ordered(folder, EVE, "end-1", order)

    def refused() -> None:
        with pytest.raises(Failure, match="not an operator"):
            operators.end_job(folder, ["GPU-1"], JOB)

    with has_gpu(folder, ANNA):
        by(pwd.getpwnam("games").pw_uid, refused)

    assert operators.who_ends(folder, (NAME,), f"{JOB}/2", ANNA) == ""


def test_a_job_that_holds_no_gpu_is_not_ended(folder: str) -> None:
    def refused() -> None:
        for job in ("training-other", ""):
            with pytest.raises(Failure, match="holds no"):
                operators.end_job(folder, ["GPU-1", "GPU-2"], job)

    with has_gpu(folder, EVE):
        by(OPERATOR, refused)


def test_nobody_protects_a_job_by_a_lease_that_names_it(folder: str) -> None:
    with has_gpu(folder, EVE), has_gpu(folder, ANNA, "GPU-2"):
        by(OPERATOR, lambda: check(bool(operators.end_job(folder, ["GPU-1", "GPU-2"], JOB))))

    for person in (EVE, ANNA):
        assert operators.who_ends(folder, (NAME,), f"{JOB}/2", person) == NAME


def test_a_job_that_an_operator_ends_is_not_begun_again_where_root_empties_the_host(
    folder: str, policy: Path
) -> None:
    (policy.parent / "drain").touch()
    with has_gpu(folder):
        by(OPERATOR, lambda: check(bool(operators.end_job(folder, ["GPU-1"], JOB))))
    order = json.dumps({"order": operators.END, "attempt": f"{JOB}/2", "person": os.getuid()})
    ordered(folder, OPERATOR, "end-1", order)

    found = limits_of(folder, "asked").exceeded()

    assert found is not None and found.kind == "halt"


def test_an_operators_orders_that_ended_jobs_are_gone_a_day_later(folder: str) -> None:
    ordered(folder, OPERATOR, "end-old", '{"order": "end"}')
    os.utime(f"{folder}/end-old", (1, 1))
    ordered(folder, EVE, "end-theirs", '{"order": "end"}')
    os.utime(f"{folder}/end-theirs", (1, 1))

    with has_gpu(folder), has_gpu(folder, EVE, "GPU-2", "training-other"):
        for job in (JOB, "training-other", JOB):
            by(OPERATOR, partial(operators.end_job, folder, ["GPU-1", "GPU-2"], job))

    names = {path.name for path in Path(folder).glob("end-*")}
    assert "end-old" not in names and "end-theirs" in names and len(names) == 3
    assert operators.who_ends(folder, (NAME,), f"{JOB}/2", EVE) == NAME


# What nobody else does


def counts(folder: str) -> bool:
    """Say whether somebody drains the host, as a learner and as who waits see it; they see the same."""
    found = drain_of(folder, (NAME,)) is not None
    assert bool(watch(folder).check()) is found
    return found


def test_an_order_counts_by_its_owner_alone(folder: str) -> None:
    ordered(folder, EVE)
    ordered(folder, EVE, f"drain-{OPERATOR}", json.dumps({"order": DRAIN, "owner": NAME, "person": OPERATOR}))
    assert not counts(folder)

    ordered(folder, OPERATOR, "drain-any")
    assert counts(folder)


def test_nobody_keeps_an_operator_from_an_order_by_taking_its_name(folder: str) -> None:
    for ending in ("", *(f".{number}" for number in range(20))):
        ordered(folder, EVE, f"drain-{OPERATOR}{ending}")
    by(OPERATOR, lambda: operators.drain(folder))

    assert counts(folder)


def test_root_takes_back_what_operators_have_ordered_whatever_else_lies_there(folder: str) -> None:
    ordered(folder, OPERATOR, "drain-b")
    by(EVE, lambda: Path(f"{folder}/drain-").mkdir())
    assert counts(folder)

    operators.end_drain(folder)

    assert not counts(folder)


def test_more_orders_of_one_person_than_anybody_needs_are_not_looked_at(folder: str) -> None:
    for number in range(120):
        descriptor = replace_own(f"{folder}/drain-{number}", '{"order": "drain"}')
        assert descriptor is not None
        os.close(descriptor)
        os.chown(f"{folder}/drain-{number}", OPERATOR, -1)

    assert len(operators.read_orders(folder, DRAIN, [NAME])) == 100


def a_link(folder: str, elsewhere: Path) -> None:
    ordered(str(elsewhere), OPERATOR, "mine")
    Path(f"{folder}/drain-1").symlink_to(elsewhere / "mine")


def a_hard_link(folder: str, elsewhere: Path) -> None:
    ordered(str(elsewhere), OPERATOR, "mine")
    os.link(elsewhere / "mine", f"{folder}/drain-1")


def an_entry(folder: str, elsewhere: Path) -> None:
    """An entry of the queue that lies there by another name, too, and is no entry any more."""

    def wait() -> None:
        assert HeldEntries().hold(str(elsewhere), HOME, "waits", {"gpus": 1})

    by(OPERATOR, wait)
    (entry,) = elsewhere.iterdir()
    entry.rename(f"{folder}/drain-1")


def open_to_all(folder: str, elsewhere: Path) -> None:
    ordered(folder, OPERATOR)
    Path(f"{folder}/drain-1").chmod(0o666)


def a_folder(folder: str, elsewhere: Path) -> None:
    Path(f"{folder}/drain-1").mkdir()
    os.chown(f"{folder}/drain-1", OPERATOR, -1)


def a_pipe(folder: str, elsewhere: Path) -> None:
    os.mkfifo(f"{folder}/drain-1", 0o644)
    os.chown(f"{folder}/drain-1", OPERATOR, -1)


def nonsense(folder: str, elsewhere: Path) -> None:
    for number, text in enumerate(("", "[" * 4096, '"drain"', '{"order": "end"}', '{"order": ["drain"]}')):
        ordered(folder, OPERATOR, f"drain-{number}", text)


@pytest.mark.parametrize(
    "make",
    [a_link, a_hard_link, an_entry, open_to_all, a_folder, a_pipe, nonsense],
    ids=lambda one: one.__name__,
)
def test_what_an_operator_has_not_written_as_an_order_is_none(
    folder: str, make: Callable[[str, Path], None]
) -> None:
    elsewhere = Path(folder).parent / "elsewhere"
    leases.make_folder(str(elsewhere))
    make(folder, elsewhere)

    assert not counts(folder)


def test_a_learner_loads_nothing_for_operators_where_none_has_ordered_anything(
    folder: str, policy: Path
) -> None:
    code = f"""
import sys
from workbench.learner.queue import policy, preemption
policy.POLICY_FILE = preemption.POLICY_FILE = {str(policy)!r}
facts = {{"leases_folder": {folder!r}, "priority": 50, "preemption": "asked", "preemption_seconds": 1.0}}
watch = preemption.PreemptionWatch(facts, "job/1")
print(watch.check(), {{"grp", "workbench.learner.queue.operators"}} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout == " set()\n"
