"""A collector in a process of its own gives what it gives here, and can be ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.learner.collecting import Rig, context
from tests.support.waiting import patience
from workbench.learner.collectors import make, subprocess
from workbench.learner.collectors.interface import Collector
from workbench.learner.collectors.regex.collector import RegexCollector
from workbench.learner.collectors.subprocess import FailsafeCollector, IsolatedCollector

METRICS = {
    "type": "regex_extractor",
    "groups": {"g": {"regex": "n=%{INT:n}", "scalars": {"n": {"type": "INT", "value": "$n"}}}},
}


def in_thread(do: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(do()))
    thread.start()
    thread.join(patience())
    assert found, "it has not come back"
    return found[0]


def made_in_thread(tmp_path: Path, metrics: dict[str, Any]) -> FailsafeCollector:
    found = in_thread(lambda: make(metrics, context(tmp_path))[0])
    assert isinstance(found, FailsafeCollector)
    return found


def test_it_gives_what_the_collector_gives_killed_or_not(tmp_path: Path) -> None:
    where = context(tmp_path)
    output = b"".join(b"n=%d\n" % n for n in range(3000)) + b"n=7"

    def run(build: Callable[[], Collector]) -> Rig:
        run = Rig(build)
        for begin in range(0, len(output), 1000):
            run.print(output[begin : begin + 1000])
            if begin % 3000 == 0:
                run.step()
        run.mark()
        run.kill()
        run.finish()
        return run

    here = run(lambda: RegexCollector(METRICS, where))
    there = run(lambda: IsolatedCollector("regex_extractor", METRICS, where))

    assert there.points == here.points
    assert [value for _step, value in there.points["g", "", "n"]] == [*range(3000), 7]


def test_in_a_thread_a_catastrophic_regex_is_given_up_as_well(tmp_path: Path) -> None:
    groups = {"bad": {"regex": "(?P<x>(a+)+)$", "scalars": {}}, **METRICS["groups"]}  # type: ignore[dict-item] # an object
    collector = made_in_thread(tmp_path, {"type": "regex_extractor", "groups": groups})
    assert isinstance(collector.inner, IsolatedCollector)
    data = b"a" * 60 + b"!\nn=5\n"

    in_thread(lambda: collector.output(data, len(data), 1))
    collector.finish(2)
    records = collector.take()

    assert [record.get("values") for record in records] == [{"n": [5]}, None]
    assert "takes too long" in records[1]["text"]


def test_what_ends_by_itself_stays_where_it_is(tmp_path: Path) -> None:
    for kind in ("plain", "tensorboard", "emetrics_file"):
        assert not isinstance(made_in_thread(tmp_path, {"type": kind}).inner, IsolatedCollector)


def test_a_regex_that_is_none_is_reported_the_same(tmp_path: Path) -> None:
    bad = {"type": "regex_extractor", "groups": {"g": {"regex": "("}}}
    here = make(bad, context(tmp_path))[0].take()
    there = made_in_thread(tmp_path, bad).take()

    assert there[0]["text"] == here[0]["text"]


@pytest.mark.parametrize(
    "script", ["import time; time.sleep(1000)", "raise SystemExit(1)", "print('nonsense')"]
)
def test_one_that_hangs_or_dies_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(subprocess, "_SCRIPT", script)
    monkeypatch.setattr(subprocess, "DEADLINE_SECONDS", 0.5)

    (record,) = made_in_thread(tmp_path, METRICS).take()
    assert "cannot be used: it was ended" in record["text"]
