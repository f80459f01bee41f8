"""The gate: a test that fails beside others and passes alone is unsteady, one that fails twice is red; two lanes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.__main__ import (
    MOST_UNSTEADY,
    Verdict,
    command_of,
    judge,
    record_line,
    seconds_by_folder,
    try_tests,
    unsteady_text,
)
from tests.gate.affected import STARTED, Affected, affected, arrows_of, within
from tests.gate.hunt import hunt
from tests.gate.machine import left_behind, traces
from tests.gate.order import estimate, spread
from tests.gate.record import SECONDS, Outcome, Record, cache_folder
from tests.support.waiting import until

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails():\n    assert 1 == 2\n"
FAILS_ONCE = """
import pathlib
def test_fails_once():
    tried = pathlib.Path(__file__).with_name("tried")
    before = tried.exists()
    tried.touch()
    assert before, "the first try"
"""
TEARDOWN_FAILS_ONCE = """
import pathlib, pytest
@pytest.fixture
def thing():
    yield
    tried = pathlib.Path(__file__).with_name("torn")
    before = tried.exists()
    tried.touch()
    assert before, "the first teardown"
def test_of_a_thing(thing): pass
"""
SKIPS = "import pytest\ndef test_skips():\n    pytest.skip('no GPU')\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose tests this module writes.

    Of the plugins that are installed its runs load xdist alone: importing the others is half of what a run takes.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  soak(why): long\n  unsteady(known): chance\n  chaos: harm\n"
        "  quick: short\n  timeout: limit\n"
    )
    return folder


def argv(project: Path, *options: str) -> list[str]:
    plugins = ("tests.gate.record", "tests.gate.lanes", "tests.gate.workers")
    base = [sys.executable, "-m", "pytest", "-q", *(word for name in plugins for word in ("-p", name))]
    return [*base, f"--rootdir={project}", f"--config-file={project}/pytest.ini", *options, str(project)]


def tried(project: Path, **modules: str) -> Verdict:
    """Run a project's tests as the gate does, in two workers, and what failed alone."""
    for name, text in modules.items():
        (project / f"test_{name}.py").write_text(text)
    alone = argv(project, "-n", "0", "--last-failed", "--last-failed-no-failures", "none")
    verdict, _ = try_tests(argv(project, "-n", "2"), alone, project)
    return verdict


def test_what_fails_once_and_passes_alone_is_unsteady_and_not_red(project: Path) -> None:
    verdict = tried(project, a=PASSES, b=FAILS_ONCE, c=TEARDOWN_FAILS_ONCE, d=SKIPS)

    assert verdict.unsteady == ("test_b.py::test_fails_once", "test_c.py::test_of_a_thing")
    assert str(verdict) == "3 passed, 0 failed, 1 skipped, 2 unsteady"
    assert verdict.green


def test_what_fails_twice_is_red(project: Path) -> None:
    verdict = tried(project, a=PASSES, b=FAILS_ONCE, c=FAILS)

    assert (verdict.failed, verdict.unsteady) == (("test_c.py::test_fails",), ("test_b.py::test_fails_once",))
    assert not verdict.green


def test_a_module_that_cannot_be_imported_is_red(project: Path) -> None:
    verdict = tried(project, a=PASSES, b="import nothing_of_this_name\n")

    assert verdict.failed == ("test_b.py",)
    assert not verdict.green


def test_a_worker_that_dies_is_a_failed_test(project: Path) -> None:
    verdict = tried(project, a=PASSES, b="import os\ndef test_dies():\n    os._exit(3)\n")

    assert "test_b.py::test_dies" in verdict.failed or verdict.broken
    assert not verdict.green


def test_all_workers_are_forks_of_a_process_that_has_imported_the_modules_once(project: Path) -> None:
    imported = project / "imported"
    module = f"""
import os
with open({str(imported)!r}, "a") as file:
    file.write("once")
def test_tells_its_worker(tmp_path):
    print(os.environ["PYTEST_XDIST_WORKER"])
    assert tmp_path.parent.name == "popen-" + os.environ["PYTEST_XDIST_WORKER"]
    assert 0, os.getpid()
"""
    (project / "test_a.py").write_text(module)
    (project / "test_b.py").write_text(module)

    ran = subprocess.run(argv(project, "-n", "2", "-W", "error"), capture_output=True, text=True)

    assert imported.read_text() == "once" * 2
    assert sorted(re.findall(r"^gw\d$", ran.stdout, re.MULTILINE)) == ["gw0", "gw1"], ran.stdout + ran.stderr
    assert len(set(re.findall(r"AssertionError: (\d+)", ran.stdout))) == 2
    assert ran.returncode == 1


def test_modules_of_each_folder_are_spread_over_the_run_the_long_ones_first() -> None:
    seconds = {"tests/pods/a.py": 1.0, "tests/pods/b.py": 60.0, "tests/pods/c.py": 39.0}
    seconds |= {f"tests/quick/{number}.py": 1.0 + number / 1000 for number in range(10)}

    order = spread(seconds)

    assert order[:2] == ["tests/pods/b.py", "tests/quick/9.py"]
    pods = [order.index(f"tests/pods/{name}.py") for name in "bca"]
    assert pods == [0, 7, 12]
    assert [module for module in order if "quick" in module] == [
        f"tests/quick/{n}.py" for n in range(9, -1, -1)
    ]


def test_a_new_module_is_expected_to_take_what_tests_of_its_folder_take() -> None:
    tests = ["tests/pods/a.py"] * 2 + ["tests/pods/new.py"] * 3 + ["tests/other/new.py"] * 5

    assert estimate(tests, {"tests/pods/a.py": 20.0}) == {
        "tests/pods/a.py": 20.0,
        "tests/pods/new.py": 30.0,
        "tests/other/new.py": 2.0,
    }


def test_workers_take_modules_in_the_order_that_the_last_run_gives(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    for name in "abc":
        (project / f"test_{name}.py").write_text(
            f"import pathlib\ndef test_of_it():\n    with open({str(project / 'order')!r}, 'a') as file:\n"
            f"        file.write({name!r})\n"
        )
    cache_folder().mkdir(parents=True)
    (cache_folder() / SECONDS).write_text('{"test_a.py": 1.0, "test_b.py": 3.0, "test_c.py": 2.0}')
    in_order = [*argv(project, "-p", "tests.gate.order", "--dist=loadfile", "--no-loadscope-reorder")]

    subprocess.run([*in_order, "-n", "1"], check=True, capture_output=True)
    subprocess.run([*in_order, "-n", "0"], check=True, capture_output=True)

    assert (project / "order").read_text() == "bca" + "abc"


def record(status: int, **outcomes: Outcome) -> Record:
    return Record(status, dict(outcomes), {})


def test_a_failure_of_another_tool_is_red_at_once() -> None:
    lint = judge(1, None, None)
    mypy_after_tests = judge(2, record(0, a="passed"), None)
    interrupted = judge(2, record(2, a="failed"), record(0, a="passed"))

    assert [verdict.green for verdict in (lint, mypy_after_tests, interrupted)] == [False] * 3
    assert lint.broken == "the test command ended with 1 before its tests did"


def test_many_unsteady_tests_are_red() -> None:
    def verdict(count: int) -> Verdict:
        failed: dict[str, Outcome] = {f"t{n}": "failed" for n in range(count)}
        passed: dict[str, Outcome] = dict.fromkeys(failed, "passed")
        return judge(1, Record(1, {**failed, "p": "passed"}, {}), Record(0, passed, {}))

    assert verdict(MOST_UNSTEADY).green
    assert not verdict(MOST_UNSTEADY + 1).green


def test_failed_tests_that_were_not_run_again_or_skipped_then_are_red() -> None:
    first = record(1, a="failed", b="passed")

    assert not judge(1, first, None).green
    assert not judge(1, first, record(0, a="skipped")).green


def test_a_run_of_no_test_is_red() -> None:
    assert not judge(0, record(0), None).green


def test_a_run_is_one_line_of_the_record() -> None:
    line = record_line("a" * 40, Verdict(7, (), 2, ("x",)), 61.4, 0.5, 71.2)

    commit, verdict, *rest = line.split()
    assert (commit, verdict) == ("a" * 40, "passed")
    counts = ["seconds=61", "tests=7", "failed=0", "skipped=2", "unsteady=1"]
    assert rest[:-1] == [*counts, "load=0.50", "addition_ns=71"]
    assert record_line("a", Verdict(7, ("y",), 2, ()), 1, 0, 1).split()[1] == "failed"


def test_the_gate_runs_the_command_that_the_readme_shows() -> None:
    command = command_of((Path(__file__).parents[2] / "README.md").read_text())

    assert [
        tool for tool in ("ruff check", "ruff format", "mypy", "pytest -n auto") if tool not in command
    ] == []
    with pytest.raises(SystemExit, match="test command"):
        command_of("# fabric\n")


def test_what_is_on_this_machine_is_seen() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        # Its descriptors are closed, which ends Popen's wait, before the kernel has set its arguments.
        until(Path(f"/proc/{process.pid}/cmdline").read_bytes, "the program to be begun")
        seen = traces()
        process.kill()

    assert f"{process.pid} sleep 600" in seen["processes"]
    assert {"root"} <= seen["users"]
    assert {"/", "/proc"} <= seen["mounts"]


def test_what_a_run_leaves_behind_is_named_by_kind_and_the_first_few() -> None:
    before = {"users": frozenset({"root"}), "mounts": frozenset({"/"}), "files": frozenset({"/tmp/a"})}
    after = {"users": before["users"], "mounts": frozenset(), "files": before["files"] | frozenset("bcdefgh")}

    assert left_behind(before, after) == ["7 files: b, c, d, e, f, and 2 more"]
    assert left_behind(before, before) == []


def test_a_process_that_was_started_again_is_not_left_behind() -> None:
    before = {"processes": frozenset({"10 kubelet --config a", "11 etcd"})}
    after = {"processes": frozenset({"20 kubelet --config a", "11 etcd", "21 etcd", "22 sleep 9"})}

    assert left_behind(before, after) == ["2 processes: 21 etcd, 22 sleep 9"]


MARKED = """
import pytest
@pytest.mark.unsteady("two threads meet")
def test_by_chance():
    assert 1 == 2, "the other came first"
@pytest.mark.unsteady("nothing yet")
def test_good_today(): pass
"""


def test_a_test_that_is_marked_unsteady_is_shown_and_fails_nothing(project: Path) -> None:
    (project / "test_marked.py").write_text(MARKED)
    verdict, first = try_tests(argv(project), argv(project, "-n", "0", "--last-failed"), project)

    assert first is not None
    assert verdict.green
    assert "the other came first" in first.excused["test_marked.py::test_by_chance"]
    assert "MARKED UNSTEADY test_marked.py::test_by_chance: AssertionError" in unsteady_text(verdict, first)


def test_marked_tests_are_few_and_listed_for_those_who_work_on_fabric() -> None:
    root = Path(__file__).parents[2]
    marked = [
        file.relative_to(root).as_posix()
        for file in sorted((root / "tests").rglob("test_*.py"))
        for line in file.read_text().splitlines()
        if re.match(r"\s*(@pytest\.mark\.unsteady\(|pytestmark = .*mark\.unsteady\()", line)
        and file.name != "test_gate.py"
    ]
    listed = (root / "CONTRIBUTING.md").read_text()

    assert len(marked) <= 5
    assert [file for file in marked if file not in listed] == []


def test_a_hunt_counts_how_often_a_test_failed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "conftest.py").write_text('pytest_plugins = ("tests.gate.record", "tests.gate.lanes")')
    (project / "test_a.py").write_text(PASSES + FAILS_ONCE)

    assert not hunt([str(project / "test_a.py")], times=3, load=1, workers=0)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "2 tests, 3 runs beside 1 busy loops: 1 of them failed at least once"
    )
    assert hunt([str(project / "test_a.py")], times=2, load=0, workers=0)
    assert not hunt([str(project / "test_b.py")], times=2, load=0, workers=0)  # there is none


def test_the_seconds_of_modules_are_added_up_by_folder(project: Path) -> None:
    (project / "test_a.py").write_text(PASSES)
    _, first = try_tests(argv(project, "-n", "2"), argv(project), project)

    assert first is not None
    assert list(first.seconds) == ["test_a.py"]
    assert seconds_by_folder({"tests/ssh/a.py": 2.0, "tests/cli/b.py": 9.0, "tests/ssh/sub/c.py": 3.0}) == [
        "     9 s cli",
        "     5 s ssh",
    ]


ARROWS = {
    "workbench.a": set[str](),
    "workbench.b": {"workbench.a"},
    "tests.a.conftest": {"workbench.b"},
    "tests.a.test_near": {"workbench.a"},
    "tests.a.test_far": {"tests.a.conftest"},
    "tests.b.test_apart": set[str](),
}


def test_what_a_change_can_reach_is_found_nearest_first() -> None:
    def names(*files: str) -> list[str]:
        return [f"{one.path} {one.distance}" for one in affected(files, ARROWS, {})]

    assert names("workbench/a.py") == ["tests/a/test_near.py 1", "tests/a/test_far.py 3"]
    assert names("workbench/b.py") == ["tests/a/test_far.py 2"]
    assert names("tests/b/test_apart.py") == ["tests/b/test_apart.py 0"]
    assert names("tests/b/golden.json") == ["tests/b/test_apart.py 0"]


def test_the_nearest_are_taken_until_the_time_is_over_and_what_has_changed_in_any_case() -> None:
    found = [
        Affected("changed", 0, 500.0),
        Affected("near", 1, 60.0),
        Affected("dear", 2, 90.0),
        Affected("far", 3, 1.0),
    ]

    taken, left = within(found, 600.0)

    assert [[one.path for one in them] for them in (taken, left)] == [["changed", "near", "far"], ["dear"]]


def test_the_tests_of_the_command_line_are_reached_by_what_it_starts() -> None:
    packages = ("workbench/cli", "workbench/controller", "workbench/learner")
    arrows = arrows_of(tops=(*packages, "tests/cli", "tests/learner", "tests/support"))

    assert {"workbench.controller.main", "workbench.cli.commands.upkeep"} <= arrows["tests.support.command"]
    assert "tests.support.command" in arrows["tests.cli.test_life"]
    assert set(STARTED) <= set(arrows)


SOAK = """
import pytest
@pytest.mark.soak("many variants")
def test_variant(): pass
@pytest.mark.chaos
def test_harm(chaos_rounds, note_harm):
    for _ in range(chaos_rounds or 2):
        note_harm("scribe killed")
def test_behaviour(): pass
def test_property(): pass
test_property.is_hypothesis_test = True  # as Hypothesis marks its own
"""


@pytest.mark.parametrize(
    ("options", "expected", "unexpected"),
    [
        ((), ["3 passed, 1 skipped", "soak: many variants (pytest -m soak)"], ["rounds of harm"]),
        (("-m", "soak"), ["3 passed, 1 deselected", "10 rounds of harm, 1 kinds, 0 findings"], ["skipped"]),
        (("-m", "soak", "-n", "2"), ["3 passed", "    10 scribe killed"], ["skipped"]),
        (("-m", "not soak"), ["3 passed, 1 deselected"], ["rounds of harm"]),
        (("--chaos-rounds", "3"), ["3 passed, 1 skipped", "3 rounds of harm"], []),
    ],
)
def test_the_gate_leaves_the_soak_out_and_the_soak_counts_its_harm(
    project: Path, options: tuple[str, ...], expected: list[str], unexpected: list[str]
) -> None:
    (project / "test_lanes.py").write_text(SOAK)

    printed = subprocess.run(
        argv(project, "-rs", *options), capture_output=True, text=True, check=True
    ).stdout

    assert [part for part in expected if part not in printed] == []
    assert [part for part in unexpected if part in printed] == []
