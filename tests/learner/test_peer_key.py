"""The key by which the pods of a trial know one another: code has it in its variables, and nobody else sees it."""

from __future__ import annotations

import base64
import signal
from collections.abc import Callable

import pytest

from tests.learner.agent import Learner, kill
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.pod.config import PodConfig, own_variables

Make = Callable[..., Learner]

PRINTS_ALL = (
    NAP + 'echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; env; env | base64 -w0; echo; echo end >&2'
)
MASKED = b"FABRIC_PEER_KEY=" + b"*" * 64 + b"\n"


def with_key(one: Learner, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a learner the key that the first of two pods of a trial has; return it."""
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", "{}")
    pod = PodConfig({"launch": {"learners": 2}, "stem": "digits-a1", "token": "t"}, 0)
    key = own_variables(pod)["FABRIC_PEER_KEY"]
    one.rewrite(env={**one.launch["env"], "FABRIC_PEER_KEY": key})
    return key


def files_with(one: Learner, key: str) -> list[str]:
    """Return which files of its folder have the key, as it is or in base64.

    The launch document has it: that lies on the pod's own volume, and is read by its agent alone.
    """
    encoded = (base64.b64encode(b"-" * before + key.encode())[4:-4] for before in range(3))
    forms = [key.encode(), *encoded]
    files = [each for each in one.folder.rglob("*") if each.is_file() and each.name != "launch.json"]
    return [each.name for each in files if any(form in each.read_bytes() for form in forms)]


def test_the_key_is_in_nothing_of_what_code_prints(learner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = learner(PRINTS_ALL)
    key = with_key(one, monkeypatch)
    (one.work / "go").touch()

    one.run()

    assert MASKED in one.output()
    assert one.output().endswith(b"end\n")
    assert files_with(one, key) == []


def test_the_key_is_in_no_metric_or_note(learner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = learner(
        'echo "{\\"kind\\": \\"note\\", \\"text\\": \\"key $FABRIC_PEER_KEY\\"}" >>"$FABRIC_REPORT"'
    )
    with_key(one, monkeypatch)

    one.run()

    assert [each["text"] for each in one.records("note")] == ["key " + "*" * 64]


def test_the_key_is_in_nothing_of_what_another_agent_keeps(
    learner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both agents are killed with output in the pipe; the command still holds it."""
    one = learner(f'{PRINTS_ALL}; touch "$WORK/printed"; sleep 1000')
    key = with_key(one, monkeypatch)
    process = one.start()
    one.until_printed(b"ready\n")
    state = one.state()
    for pid in (state["pid"], state["scribe_pid"]):
        kill(pid, signal.SIGSTOP)
    (one.work / "go").touch()
    until(lambda: (one.work / "printed").exists())
    for pid in (state["scribe_pid"], state["pid"]):
        kill(pid)
    process.wait()

    one.run()

    assert MASKED in one.output()
    assert files_with(one, key) == []
