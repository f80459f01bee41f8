"""What is recorded of a job is the Python and the packages of the host that ran it, not of the machine that gave it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.kept_ground import KeptGround


@pytest.fixture(scope="module")
def python(kept_box: Box) -> Path:
    """A Python at the host that has one package of its own."""
    folder = kept_box.user.home / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3").symlink_to("/usr/bin/python3")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "lib" / "python3.11" / "site-packages" / "imagined-4.2.dist-info").mkdir(parents=True)
    return folder / "bin" / "python3"


@pytest.fixture(scope="module")
def ran() -> dict[str, str]:
    """The jobs that have run there: all tests look at the same."""
    return {}


@pytest.fixture
def fabric(kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    """The command line, with a working folder."""
    return kept_ground.fabric(monkeypatch)


@pytest.fixture
def plain(fabric: Fabric, kept_box: Box, ran: dict[str, str]) -> str:
    """A job that names no Python."""
    return ran.get("plain") or _run(fabric, kept_box, ran, "plain", "--", "true")


@pytest.fixture
def named(fabric: Fabric, kept_box: Box, ran: dict[str, str], python: Path) -> str:
    """One that names that Python."""
    args = ("--set", f"python={python}", "--", "python3", "-c", "pass")
    return ran.get("named") or _run(fabric, kept_box, ran, "named", *args)


def _run(fabric: Fabric, box: Box, ran: dict[str, str], which: str, *args: str) -> str:
    fabric("run", "--backend", box.address, *args)
    ran[which] = str(fabric.json("show", "@last", "--json")["id"])
    return ran[which]


def test_show_says_which_python_and_packages_of_the_host_ran_a_job(
    fabric: Fabric, python: Path, named: str
) -> None:
    shown = fabric.json("show", named, "--json")["ran_with"]
    text = fabric("show", named).stdout

    assert (shown["python"], shown["packages"]) == (str(python), ["imagined==4.2"])
    assert f"{python} (3.11) of {shown['host']} with 1 package" in text


def test_the_hosts_own_python_is_recorded_where_a_job_names_none(fabric: Fabric, plain: str) -> None:
    shown = fabric.json("show", plain, "--json")["ran_with"]

    assert shown["python"].startswith(("/usr/bin/", "/usr/local/bin/"))
    assert not any(each.startswith("pytest==") for each in shown["packages"])


def test_jobs_are_compared_by_the_packages_that_ran_them(fabric: Fabric, plain: str, named: str) -> None:
    compared = fabric("diff", named, plain, expect=1).stdout

    assert "imagined" in compared
    again = fabric("rerun", named, "--detach")
    assert "differs" not in again.stderr
    fabric("wait", "@last")
