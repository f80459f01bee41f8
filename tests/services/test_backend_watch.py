"""A backend asked again and again: what it has, what it lacks, and what becomes of its failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from backends.contract.host import BackendOptions, Finding, Inventory, Node
from tests.support.waiting import LIMIT_SECONDS
from workbench.errors import BackendUnreachable, NeedsLogin
from workbench.services.backends.inventory import inventories
from workbench.services.backends.probe import BackendReport, finding_lines, probe
from workbench.services.backends.watch import BackendStatus, BackendWatch
from workbench.services.cancel import Cancelled

BOX = BackendOptions("box", "local")
HAS = Inventory((Node("box", 8, 16 << 30),), 0)
LACKS = (Finding("engine", "none", "lack", "images are not used", "install Docker"),)


class Box:
    """A backend that answers as the test wants it, and counts what it is asked."""

    fails: Exception | None = None
    opened = closed = probed = 0

    def __init__(self, options: BackendOptions) -> None:
        self.options = options

    def open(self) -> Box:
        Box.opened += 1
        return self

    def close(self) -> None:
        Box.closed += 1

    def inventory_of(self, opened: object) -> Inventory:
        assert opened is not None
        if Box.fails is not None:
            raise Box.fails
        return HAS

    def probe(self) -> Iterator[Finding]:
        Box.probed += 1
        yield from LACKS


@pytest.fixture(autouse=True)
def box(monkeypatch: pytest.MonkeyPatch) -> None:
    Box.fails = None
    Box.opened = Box.closed = Box.probed = 0
    monkeypatch.setattr("backends.registry.load_backend", Box)


def asked(watch: BackendWatch, **more: Any) -> list[BackendStatus]:
    return list(watch.ask(**more))


def test_a_backend_is_reached_once_however_often_it_is_asked() -> None:
    watch = BackendWatch(BOX, probes=False)

    found = asked(watch) + asked(watch)
    watch.close()

    assert [(one.name, one.inventory, one.trouble) for one in found] == [("box", HAS, "")] * 2
    assert (Box.opened, Box.closed, Box.probed) == (1, 1, 0)


def test_what_a_backend_has_is_given_before_what_it_lacks() -> None:
    first, then = asked(BackendWatch(BOX))

    assert first.inventory is then.inventory is HAS
    assert (first.findings, then.findings) == ((), LACKS)


def test_a_backend_is_probed_again_only_when_that_is_asked_for() -> None:
    watch = BackendWatch(BOX)

    numbers = [len(asked(watch, probe=probe)) for probe in (True, False, False, True)]

    assert numbers == [2, 1, 1, 2]
    assert asked(watch)[0].findings == LACKS


def test_after_a_failure_the_next_question_connects_anew() -> None:
    watch = BackendWatch(BOX, probes=False)
    asked(watch)
    Box.fails = BackendUnreachable("box does not answer", hint="is it on?")

    (failed,) = asked(watch)
    Box.fails = None
    (answered,) = asked(watch)

    assert (failed.inventory, failed.trouble, failed.hint) == (None, "box does not answer", "is it on?")
    assert not failed.needs_login
    assert answered.inventory is HAS
    assert (Box.opened, Box.closed) == (2, 1)


def test_a_backend_that_wants_a_person_says_so() -> None:
    Box.fails = NeedsLogin("box asks for a password")

    (failed,) = asked(BackendWatch(BOX))

    assert failed.needs_login


def test_a_bug_of_a_backend_is_its_trouble_and_not_the_end() -> None:
    Box.fails = ZeroDivisionError("of a plugin")

    (failed,) = asked(BackendWatch(BOX))

    assert failed.trouble == "ZeroDivisionError: of a plugin"


def test_backends_are_asked_one_after_the_other_until_the_caller_has_enough() -> None:
    cancel = threading.Event()
    found = inventories([BOX, BOX], cancel=cancel)

    assert next(found).inventory is HAS
    cancel.set()

    assert list(found) == []
    assert (Box.opened, Box.closed) == (1, 1)


def test_what_was_found_is_formatted_as_lines() -> None:
    found = (Finding("python", "3.11.9"), *LACKS)

    assert BackendReport(found, 0).verdict("box") == "box: usable"
    assert finding_lines(found) == [
        "  ok     python  3.11.9",
        "  lack   engine  none",
        "                 so: images are not used",
        "                 do: install Docker",
    ]


def test_a_probe_that_hangs_ends_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, released = threading.Event(), threading.Event()

    def hang(self: Box) -> Iterator[Finding]:
        cancel.set()
        released.wait(LIMIT_SECONDS)
        yield from LACKS

    monkeypatch.setattr(Box, "probe", hang)

    with pytest.raises(Cancelled):
        probe(BOX, cancel=cancel)
    released.set()
