"""What is taken as a job's code, however it was chosen: never a home of fabric, much only on request."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick.data.support import packed_names
from tests.support.command import EXECUTABLE, Fabric
from tests.support.processes import end_everything
from tests.support.terminal import OnTerminal
from tests.support.waiting import patience, until
from workbench.paths import Home
from workbench.terminal import code

MANIFEST = "name: small\nframework: {command: 'ls -A $MODEL_DIR'}\n"
REFUSED = "not taken as code unasked"


def state_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }


@pytest.mark.unmade_home
def test_a_manifest_in_the_home_of_fabric_is_refused_and_the_home_stays_whole(
    fabric: Fabric, home: Home
) -> None:
    home.path.mkdir(mode=0o700)
    (home.path / "m.yml").write_text(MANIFEST)

    for _ in range(3):
        with (home.path / "out.txt").open("w") as out:
            ran = subprocess.run(
                [EXECUTABLE, "run", "m.yml"], cwd=home.path, stdout=out, stderr=subprocess.PIPE, text=True
            )
        assert (ran.returncode, "is a home of fabric, which is never taken" in ran.stderr) == (64, True)

    assert fabric.json("list", "--json") == []
    assert "sound" in fabric("sql", "SELECT 'sound' AS state FROM sqlite_master LIMIT 1").stdout


def test_the_first_job_of_a_home_in_the_code_leaves_it_out_and_says_so(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = Home(fabric.folder / "deep" / "fabric-home")
    monkeypatch.setenv("FABRIC_HOME", str(inside.path))
    (fabric.folder / "m.yml").write_text(
        "name: small\nframework: {command: 'cd $MODEL_DIR; find . -type f'}\n"
    )

    try:
        ran = fabric("run", "m.yml")
    finally:
        end_everything(inside)

    assert ran.stdout.split() == ["./m.yml"]
    assert "left out of the code as a home of fabric: deep/fabric-home/\n" in ran.stderr


def test_a_sweep_of_the_home_s_own_packs_is_refused(fabric: Fabric, home: Home) -> None:
    (fabric.folder / "m.yml").write_text(MANIFEST)
    fabric("run", "m.yml")
    before = state_of(home.code)

    ran = fabric("run", "m.yml", str(home.code), "--set", "params.lr=1..5", expect=64)

    assert f"is in a home of fabric ({home.path.resolve()})" in ran.stderr
    assert len(fabric.json("list", "--json")) == 1
    assert state_of(home.code) == before


@pytest.fixture
def persons_home(fabric: Fabric) -> Path:
    """A home folder with a manifest and keys in it; fabric's own folders lie in it, too."""
    folder = fabric.folder.parent
    for name, text in ((".ssh/id_rsa", "key"), (".aws/credentials", "key"), ("m.yml", MANIFEST)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (fabric.folder / "code.yml").write_text(MANIFEST + "code: ..\n")
    return folder


@pytest.mark.parametrize(
    "args", [["m.yml"], ["work/code.yml"], ["m.yml", "."], ["--", "true"], [".", "--", "ls"]]
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_whole_home_folder_is_refused_however_it_is_chosen(
    persons_home: Path, home: Home, verb: str, args: list[str]
) -> None:
    ran = Fabric(persons_home)(verb, *args, expect=64)

    assert "is a whole home folder" in ran.stderr
    assert REFUSED in ran.stderr
    assert "--code-anyway" in ran.stderr
    assert not home.code.exists()


@pytest.mark.parametrize(
    ("args", "variables"),
    [
        (["--code-anyway"], {}),
        (["--set", "code_anyway=true"], {}),
        ([], {"FABRIC_CODE_ANYWAY": "true"}),
    ],
)
def test_a_whole_home_folder_is_taken_without_keys_on_request(
    persons_home: Path,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    variables: dict[str, str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    ran = Fabric(persons_home)("run", *args, "m.yml")

    assert {"m.yml", "work"} <= set(ran.stdout.split())
    assert not {".ssh", ".aws", "fabric"} & set(ran.stdout.split())
    assert "left out of the code as keys or credentials: .aws/, .ssh/;" in ran.stderr
    assert "left out of the code as a home of fabric: fabric/\n" in ran.stderr
    packs = [name for pack in home.code.glob("*.tar.gz") for name in packed_names(pack)]
    assert not [name for name in packs if "ssh" in name or "aws" in name]


@pytest.mark.parametrize("folder", ["/", "../.."])
def test_what_holds_everything_is_refused_at_once(fabric: Fabric, folder: str) -> None:
    (fabric.folder / "m.yml").write_text(f"{MANIFEST}code: {folder}\n")

    assert REFUSED in fabric("run", "m.yml", expect=64).stderr


def test_python_refuses_it_too_and_takes_it_on_request(persons_home: Path) -> None:
    script = (
        "import fabric_workbench as fabric\n"
        "command = ['ls', '-A']\n"
        "for given in (command, {'name': 'x', 'framework': {'command': 'true'}}, 'm.yml'):\n"
        "    try:\n"
        "        fabric.run(given, show=False)\n"
        "    except fabric.FabricError as error:\n"
        "        print(error, '|', error.hint)\n"
        "print(fabric.run(command, code_anyway=True, wait=True, show=False).logs())\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], cwd=persons_home, capture_output=True, text=True)

    lines = ran.stdout.splitlines()
    assert [REFUSED in line for line in lines[:3]] == [True, True, True], ran.stderr
    assert "m.yml" in lines[3:]
    assert ".ssh" not in lines[3:]


def test_a_credential_in_a_project_is_left_out_and_named_in_one_line(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(MANIFEST)
    (fabric.folder / ".env").write_text("TOKEN=x\n")

    quiet = fabric("run", "-q", "m.yml")
    plan = fabric("plan", "m.yml").stdout
    (fabric.folder / ".fabricignore").write_text("!.env\n")
    taken = fabric("run", "-q", "m.yml")

    assert quiet.stdout.split() == ["m.yml"]
    assert [line.partition(";")[0] for line in quiet.stderr.splitlines()] == [
        "warning: left out of the code as keys or credentials: .env"
    ]
    assert "left out of the code as keys or credentials: .env" in plan
    assert (taken.stdout.split(), taken.stderr) == ([".env", ".fabricignore", "m.yml"], "")


@pytest.fixture
def large(fabric: Fabric) -> Path:
    (fabric.folder / "m.yml").write_text(MANIFEST)
    (fabric.folder / "data").mkdir()
    for number in range(1, 13):
        with (fabric.folder / "data" / f"{number:02}.bin").open("wb") as stream:
            stream.truncate(number * 1_000_000)
    fabric("config", "set", "code.max_size", "60MB")
    return fabric.folder


def test_code_above_the_limit_is_refused_with_its_ten_largest_files(
    fabric: Fabric, large: Path, home: Home
) -> None:
    refused = fabric("run", "m.yml", "--set", "params.lr=1..3", expect=64)

    listed = [line.split()[-1] for line in refused.stderr.splitlines() if line.endswith(".bin")]
    assert f"the code in {large} is 13 files of 78 MB, which is more" in refused.stderr
    assert listed == [f"data/{number:02}.bin" for number in range(12, 2, -1)]
    assert not list(home.code.glob("*.tar.gz"))
    assert "data" in fabric("run", "m.yml", "--code-anyway").stdout


def test_a_person_is_asked_once_whether_code_above_the_limit_is_taken(
    fabric: Fabric, large: Path, home: Home
) -> None:
    refusing = OnTerminal(large, "run", "m.yml")
    refusing.read_until(b"Take all of it? [y/N] ")
    refusing.press(b"n\r")
    assert refusing.wait() == 64
    assert refusing.shown.count(b"data/12.bin") == 1
    assert fabric.json("list", "--json") == []

    agreeing = OnTerminal(large, "run", "-d", "m.yml", "--set", "params.lr=1..3")
    agreeing.read_until(b"Take all of it? [y/N] ")
    agreeing.press(b"y\r")
    assert agreeing.wait() == 0

    assert agreeing.shown.count(b"Take all of it?") == 1
    assert len(fabric.json("list", "--json")) == 3


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("max_size", "much", "must be|cannot be"),
        ("max_files", "0", "must be a number from 1"),
        ("max_seconds", "soon", "must be a number from 1"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(fabric: Fabric, key: str, value: str, message: str) -> None:
    import re

    assert re.search(message, fabric("config", "set", f"code.{key}", value, expect=64).stderr)
    assert fabric.json("config", "list", "--json") == []


def test_a_plan_leaves_the_home_as_it_was(fabric: Fabric, home: Home, clean_environment: Path) -> None:
    (fabric.folder / "m.yml").write_text(MANIFEST)
    fabric("run", "-q", "m.yml")
    (fabric.folder / "large.bin").write_bytes(bytes(3_000_000))
    before = state_of(home.code)

    planned = fabric.json("plan", "--json", "m.yml", TMPDIR=str(clean_environment / "run"))
    several = fabric.json("plan", "--json", "m.yml", "--set", "params.lr=1..3")
    text = fabric("run", "--plan", "m.yml").stdout

    assert planned["code"]["size_bytes"] == 3_000_000 + len(MANIFEST)
    assert {each["code"]["hash"] for each in several} == {planned["code"]["hash"]}
    assert "2 files, 2.9 MiB" in text
    assert state_of(home.code) == before
    assert not list((clean_environment / "run").glob("fabric-plan-*"))


def test_a_plan_in_a_new_home_puts_no_code_into_it(fabric: Fabric, home: Home) -> None:
    fabric("plan", "--", "true")

    assert not home.code.exists()


def test_a_manifest_among_the_drafts_brings_no_code(fabric: Fabric, home: Home) -> None:
    home.drafts.mkdir(parents=True)
    (home.drafts / "one.yml").write_text(MANIFEST)

    assert fabric("run", "-q", str(home.drafts / "one.yml")).stdout == ""
    assert fabric.json("show", "@last", "--json")["recorded"].get("code") is None


def test_a_plan_that_is_ended_leaves_nothing_behind(fabric: Fabric, clean_environment: Path) -> None:
    (fabric.folder / "m.yml").write_text(MANIFEST)
    with (fabric.folder / "large.bin").open("wb") as stream:
        stream.truncate(900_000_000)
    scratch = clean_environment / "scratch"
    scratch.mkdir()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        planning = fabric.start("plan", "m.yml", env={**os.environ, "TMPDIR": str(scratch)})
        until(lambda: list(scratch.glob("*/code")), "the plan to have begun")
        planning.send_signal(number)
        planning.communicate(timeout=patience())

        assert planning.returncode == 128 + number
        assert list(scratch.iterdir()) == []


def test_what_takes_long_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(code, "SILENT_SECONDS", 0.0)

    for quiet in (True, False):
        progress = code.terminal_code_options(quiet=quiet).progress
        progress("look", 2048, 0)
        progress("read", 1 << 20, 1 << 30)
        progress("pack", 1 << 20, 1 << 30)

    assert capsys.readouterr().err.splitlines() == [
        "scanning the code: 2,048 entries so far",
        "reads the code: 1.0 MiB of 1.0 GiB",
        "packs the code: 1.0 MiB of 1.0 GiB",
    ]


def test_work_that_is_quickly_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code.terminal_code_options(quiet=False).progress("look", 2048, 0)

    assert capsys.readouterr().err == ""
