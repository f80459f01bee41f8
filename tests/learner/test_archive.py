from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.support.disks import fill, small_disk
from tests.support.kept_agents import agent
from tests.support.waiting import ended, until
from workbench.learner import bootstrap
from workbench.learner.boot import archive, unpacked_copy
from workbench.learner.boot.unpacked_copy import unpack
from workbench.learner.platform.version import VERSION


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A copy of the archive in a folder of its own, not unpacked."""
    kept = Path(agent())
    (tmp_path / "elsewhere").mkdir()
    return Path(shutil.copy(kept, tmp_path / "elsewhere" / kept.name))


def test_the_archive_is_named_by_its_content_and_the_same_each_time(tmp_path: Path) -> None:
    first = Path(archive.build(str(tmp_path / "one")))
    second = Path(archive.build(str(tmp_path / "two")))

    assert first.name == hashlib.sha256(first.read_bytes()).hexdigest() + ".pyz"
    assert first.read_bytes() == second.read_bytes()
    assert archive.build(str(tmp_path / "one")) == str(first)


def test_the_archive_holds_the_agent_and_its_alias_and_nothing_else_of_ours(built: Path) -> None:
    names = zipfile.ZipFile(built).namelist()

    assert {"__main__.py", "fabric_learner.py", "workbench/__init__.py", "workbench/learner/main.py"} <= set(
        names
    )
    others = [name for name in names if not name.startswith("workbench/learner/")]
    assert sorted(others) == ["__main__.py", "fabric_learner.py", "workbench/__init__.py"]
    assert not any("__pycache__" in name for name in names)


def test_the_archive_runs_alone_on_an_old_python(built: Path, python: str) -> None:
    ran = subprocess.run([python, "-I", str(built), "version"], capture_output=True, check=True)

    assert ran.stdout.decode().strip() == VERSION
    assert built.with_suffix("").is_dir()


def test_the_first_start_goes_on_in_the_copy_that_it_has_made(built: Path, python: str) -> None:
    subprocess.run([python, "-I", str(built), "version"], capture_output=True, check=True)

    compiled = [path.name.partition(".")[0] for path in built.with_suffix("").rglob("*.pyc")]
    assert {"main", "version", "report"} <= set(compiled)
    assert "unpacked_copy" not in compiled


def test_who_starts_and_who_unpacks_an_archive_agree_on_its_name() -> None:
    assert bootstrap.SUFFIX == unpacked_copy.SUFFIX


def test_the_archive_runs_where_nothing_can_be_unpacked(tmp_path: Path, python: str) -> None:
    name = "agent.bin"  # no name that a copy could be derived from
    (tmp_path / name).write_bytes(Path(agent()).read_bytes())

    ran = subprocess.run([python, "-I", str(tmp_path / name), "version"], capture_output=True, check=True)

    assert ran.stdout.decode().strip() == VERSION
    assert [path.name for path in tmp_path.iterdir()] == [name]


other_room = pytest.mark.soak("another room that is left on the disk; the gate has one")


def serves(python: str, program: Path) -> None:
    """Start a host's agent as a connection does, which ends at once."""
    argv = [python, "-I", "-S", str(program), "host"]
    found = subprocess.run(argv, input=b"", capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (0, b"")


@pytest.mark.parametrize(
    "pages", [pytest.param(pages, marks=other_room) if pages != 6 else pages for pages in (1, 6, 11)]
)
def test_an_agent_that_met_a_full_disk_starts_again(
    tmp_path: Path, built: Path, python: str, pages: int
) -> None:
    with small_disk(tmp_path / "disk", size="12m") as disk:
        alone = disk / built.name
        alone.write_bytes(built.read_bytes())
        program = Path(unpack(str(alone))) / "__main__.py"
        fill(disk, leave=pages * os.sysconf("SC_PAGE_SIZE"))

        serves(python, program)
        serves(python, program)
        (disk / "filling").unlink()
        serves(python, program)

        read = "import marshal, sys; [marshal.loads(open(name, 'rb').read()[16:]) for name in sys.argv[1:]]"
        kept = [str(path) for path in program.parent.rglob("*.pyc")]
        assert len(kept) > 10
        assert subprocess.run([python, "-I", "-S", "-c", read, *kept], check=False).returncode == 0
        assert not list(program.parent.rglob("*.new-*"))


@pytest.mark.parametrize("left", [10, -1])
def test_compiled_modules_that_are_cut_off_are_made_anew(built: Path, python: str, left: int) -> None:
    program = Path(unpack(str(built))) / "__main__.py"
    serves(python, program)
    kept = {path: path.read_bytes() for path in program.parent.rglob("*.pyc")}
    for path, data in kept.items():
        path.write_bytes(data[:left])

    serves(python, program)
    serves(python, program)

    assert {path: len(path.read_bytes()) for path in kept} == {path: len(data) for path, data in kept.items()}


def test_the_archive_runs_while_its_unpacked_copy_cannot_be_read(built: Path, python: str) -> None:
    """As was seen on a mount of rclone's: its folder was there, and nothing in it."""
    copy = Path(unpack(str(built)))
    copy.rename(copy.with_name("elsewhere"))
    copy.mkdir()

    assert unpack(str(built)) == str(built)
    ran = subprocess.run([python, "-I", str(built), "version"], capture_output=True, check=True)

    assert ran.stdout.decode().strip() == VERSION
    assert list(copy.iterdir()) == []


def test_many_may_unpack_it_at_once(built: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-I", str(built), "version"]) for _ in range(5)]

    assert [ended(process) for process in running] == [0] * 5
    until(lambda: sorted(path.name for path in built.parent.iterdir()) == sorted([built.stem, built.name]))


def test_a_guard_is_started_from_the_unpacked_copy_without_site() -> None:
    built = agent()

    argv = archive.guard_argv("/usr/bin/python3", built, "/place/learner-1")

    unpacked = Path(built).with_suffix("") / "__main__.py"
    assert argv == ["/usr/bin/python3", "-I", "-S", str(unpacked), "guard", "/place/learner-1"]
    remote = archive.guard_argv("python3", "/elsewhere/abc.pyz", "/place/learner-1")
    assert remote == ["python3", "-I", "-S", "/elsewhere/abc.pyz", "guard", "/place/learner-1"]


def test_training_code_may_import_the_agent_from_the_archive(python: str) -> None:
    built = agent()
    code = (
        f"import sys; sys.path.append({built!r})\n"
        "import fabric_learner, workbench.learner\n"
        "assert fabric_learner.report is workbench.learner.report\n"
        "fabric_learner.report(loss=1.0); print(fabric_learner.should_stop())\n"
    )

    ran = subprocess.run([python, "-I", "-c", code], capture_output=True, check=True)

    assert ran.stdout == b"False\n"


def test_every_module_of_the_agent_can_be_imported_on_an_old_python(python: str) -> None:
    built = Path(agent())
    code = (
        f"import importlib, os, sys; root = {str(built.with_suffix(''))!r}; sys.path.insert(0, root)\n"
        "for parent, _, names in os.walk(root):\n"
        "    for name in names:\n"
        "        path = os.path.relpath(os.path.join(parent, name), root)\n"
        "        if path.endswith('.py') and '__' not in path:\n"
        "            importlib.import_module(path[:-3].replace(os.sep, '.')); print(path)\n"
    )

    ran = subprocess.run([python, "-I", "-S", "-W", "error", "-c", code], capture_output=True, check=False)

    assert ran.returncode == 0, ran.stderr.decode()
    assert len(ran.stdout.splitlines()) > 40


def test_starting_a_guard_imports_little() -> None:
    """What costs time at every start: measured 20 ms beyond Python's own start, most of it imports."""
    built = agent()
    code = (
        f"import sys; sys.path.insert(0, {built[: -len('.pyz')]!r})\n"
        "import workbench.learner.main, workbench.learner.guard.guard\n"
        "print(' '.join(sorted(sys.modules)))\n"
    )

    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)

    heavy = {
        "typing",
        "subprocess",
        "threading",
        "socket",
        "logging",
        "tempfile",
        "pathlib",
        "dataclasses",
        "asyncio",
    }
    assert heavy & set(ran.stdout.decode().split()) == set()


def test_the_sidecar_of_a_pod_imports_nothing_of_what_answers_readers() -> None:
    """It is compiled in each pod before the learner may start, with as little of a processor as a side-car has."""
    code = (
        f"import sys; sys.path.insert(0, {agent()[: -len('.pyz')]!r})\n"
        "import workbench.learner.main, workbench.learner.pod.sidecar, workbench.learner.pod.init_container\n"
        "print(' '.join(sorted(sys.modules)))\n"
    )

    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)

    of_readers = {f"workbench.learner.{name}" for name in ("host.server", "host.operations", "pod.log_dump")}
    assert of_readers & set(ran.stdout.decode().split()) == set()


def test_threads_that_make_it_at_once_unpack_all_of_it(tmp_path: Path) -> None:
    gate = threading.Barrier(8)

    def make() -> None:
        gate.wait()
        archive.build(str(tmp_path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    built = Path(archive.build(str(tmp_path)))
    unpacked = built.with_suffix("")
    names = {name for name in zipfile.ZipFile(built).namelist() if not name.endswith("/")}
    there = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert names <= there
    assert not list(tmp_path.glob("*.new-*"))
