"""What holds of a learner, wherever its agents were killed: see docs/reliability.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tests.learner.collecting import points_of
from tests.learner.crash_points.cases import BLOCKS, EXIT_CODE, FILLER, SECRET, Run, agent_of
from workbench.learner.journal.output import ENTRY, HEADER
from workbench.learner.journal.reasons import UNSAVED

PHASES: Final = ("starting", "setup", "running", "stopping", "exited")
STAY: Final = ("exit_code", "signal", "started_us", "ended_us", "boot_id", "output_saved")
"""What a state says once and never otherwise."""

OWN_FILES: Final = frozenset(
    ("launch.json", "agent.lock", "agent.log", "state.json", "stop.json", "report.jsonl", "records.jsonl")
) | {f"{journal}.{suffix}" for journal in ("setup", "output") for suffix in ("log", "idx")}
STOPPING: Final = b"stopping\n"

SPARES: Final = frozenset(("state.json.spare", "stop.json.spare", "stop.json.old", "decision.json.spare"))


def printed_by(scenario: str) -> bytes:
    """Return all that the command prints, with the secret overwritten."""
    lines = b"".join(
        b"loss=%d.5 step=%d\n%sthe secret is %s, said %d\n"
        % (step, step, b"." * FILLER if step == 2 else b"", b"*" * len(SECRET), step)
        for step in range(1, BLOCKS + 1)
    )
    return lines + (STOPPING if scenario == "halt" else b"last\nwords")


def check(run: Run) -> None:
    """Check all promises.

    Raises:
        AssertionError: one is broken; says the case and what was done in it.
    """
    try:
        _check(run)
    except (AssertionError, ValueError, OSError) as error:
        done = "\n".join(map(str, run.operations()[-40:]))
        raise AssertionError(
            f"{run.case}\n{error}\n{run.learner.state()}\n{run.learner.log()}\n{done}"
        ) from error


def _check(run: Run) -> None:
    assert "Traceback" not in run.learner.log()
    operations = run.operations()
    assert not [each for each in operations if "unseen" in each], "a file is written past the points"
    agents = [each.get("started") or agent_of(each["role"]) for each in operations if "killed" not in each]
    assert agents == sorted(agents), "an agent began while another one lived"
    _check_end(run)
    _check_output(run)
    _check_index(run)
    _check_records(run)
    _check_states(run)
    _check_files(run)
    assert run.learner.left() == []


def _lines(run: Run, name: str) -> list[str]:
    path = run.work / name
    return path.read_text().splitlines() if path.exists() else []


def _check_end(run: Run) -> None:
    """The command ran once, and its exit code is the one that is recorded, unless its guard was killed before."""
    state = run.learner.state()
    runs = len(_lines(run, "runs"))
    reason = state["reason"] or {}
    assert runs <= 1
    assert len(_lines(run, "setups")) <= 1
    is_guard_killed = any(point.role.startswith("guard") or point.both for point in run.hit())
    if state["exit_code"] is None:
        assert is_guard_killed, "nobody was killed who could have recorded it"
        is_halted = state["stopped"] == "halt"
        assert is_halted or reason["code"] == "S202", reason
    else:
        assert (state["exit_code"], state["signal"], runs) == (EXIT_CODE, None, 1)
        expected = (
            "halted by me@box" if run.case.scenario == "halt" else "the command failed with exit code 3"
        )
        assert reason["text"].startswith(expected), reason
    if (run.learner.folder / "stop.json").exists():
        assert state["stopped"] == "halt"
    decision = run.learner.folder.parent / "decision.json"
    document = json.loads(decision.read_bytes()) if decision.exists() else {}
    assert state["decided"] == (not state["stopped"]) == bool(document)
    if document:
        assert (document["exit_code"], document["failed"]) == (state["exit_code"], True)


def _check_output(run: Run) -> None:
    """Every line is there once and in order; what may be missing at the end is noted."""
    state = run.learner.state()
    content = (run.learner.folder / "output.log").read_bytes()
    whole = printed_by(run.case.scenario)
    if run.case.scenario == "halt" and content.endswith(STOPPING) and state["exit_code"] is None:
        # Who ends a learner without a guard lets it say its last words, too.
        whole = whole[: len(content) - len(STOPPING)] + STOPPING
    printed = sum(map(int, _lines(run, "printed")))
    assert content == run.learner.output(), "not all of it is published"
    assert whole.startswith(content), content
    for published in run.at_death:
        assert content.startswith(published), "what was published is another thing now"
    assert len(content) >= run.rescuable_bytes, "a process of the learner held the pipe"
    notes = [record["text"] for record in run.learner.records("note")]
    reason_text = (state["reason"] or {}).get("text", "")
    assert notes in ([], [UNSAVED]), notes
    if run.agents == 1:
        assert (notes, UNSAVED in reason_text) == ([], False), "one of its agents lived"
        assert len(content) >= printed
    if len(content) < printed:
        assert notes == [UNSAVED], "output is missing, and nobody says so"
    if state["exit_code"] is not None and UNSAVED not in reason_text:
        assert content == whole


def _check_index(run: Run) -> None:
    for journal in ("output", "setup") if run.case.scenario == "setup" else ("output",):
        path = run.learner.folder / f"{journal}.idx"
        content = (run.learner.folder / f"{journal}.log").read_bytes()
        entries = run.learner.entries(journal)
        assert path.stat().st_size == HEADER.size + ENTRY.size * len(entries)
        assert entries == sorted(entries)
        assert [newlines for _, _, newlines in entries] == [
            content.count(b"\n", 0, end) for end, _, _ in entries
        ]
        assert content == run.learner.output(journal)


def _check_records(run: Run) -> None:
    """Every metric of the output and every report is a record once, and each line is whole."""
    content = (run.learner.folder / "records.jsonl").read_bytes()
    header, *records = [json.loads(line) for line in content.splitlines()]
    assert content.endswith(b"\n")
    assert header["job"] == run.learner.launch["job"]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    points: Any = points_of(run.learner.records("metrics"))
    steps = re.findall(rb"loss=\d+\.5 step=(\d+)", run.learner.output())
    assert points.get(("train", "", "loss"), []) == [(int(step), int(step) + 0.5) for step in steps]
    report = run.learner.folder / "report.jsonl"
    reported = [(1, 0.5)] if report.exists() and report.stat().st_size else []
    assert points.get(("", "", "accuracy"), []) == reported


def _check_states(run: Run) -> None:
    """Whoever reads the state at any instant reads a whole one, and none that goes back."""
    before: dict[str, Any] = {}
    for line in run.states.read_bytes().splitlines():
        state = json.loads(json.loads(line)["state"])
        assert PHASES.index(state["phase"]) >= PHASES.index(before.get("phase", "starting")), (before, state)
        for key in STAY:
            assert before.get(key) in (None, state.get(key)), (key, before, state)
        assert state["decided"] >= before.get("decided", False)
        assert state["stopped"] in (state["stopped"], before.get("stopped"))
        before = state
    assert before == run.learner.state()


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _check_files(run: Run) -> None:
    folder = run.learner.folder
    # No agent is started for a learner whose end is recorded: what the last ones left goes with the job's folder.
    is_end_recorded_before = "killed" in run.operations()[-1]
    assert names_in(folder) <= OWN_FILES | (SPARES if is_end_recorded_before else frozenset())
    assert names_in(folder.parent) <= {folder.name, run.work.name, "job", "decision.json"}
    for path in folder.iterdir():
        if path.suffix not in (".log",) or path.name == "output.log":
            assert SECRET.encode() not in path.read_bytes(), path.name
