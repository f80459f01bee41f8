"""What is recorded of a job is the Python and the packages of the host that ran it, not of the machine that gave it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Fabric
from tests.ssh.conftest import Box


@pytest.fixture
def python(box: Box) -> Path:
    """A Python at the host that has one package of its own."""
    folder = box.user.home / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3").symlink_to("/usr/bin/python3")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "lib" / "python3.11" / "site-packages" / "imagined-4.2.dist-info").mkdir(parents=True)
    return folder / "bin" / "python3"


def test_show_says_which_python_and_packages_of_the_host_ran_a_job(
    box: Box, fabric: Fabric, python: Path
) -> None:
    fabric("run", "--backend", box.address, "--set", f"python={python}", "--", "python3", "-c", "pass")
    shown = fabric.json("show", "@last", "--json")["ran_with"]
    text = fabric("show", "@last").stdout

    assert (shown["python"], shown["packages"]) == (str(python), ["imagined==4.2"])
    assert f"{python} (3.11) of {shown['host']} with 1 package" in text


def test_the_hosts_own_python_is_recorded_where_a_job_names_none(box: Box, fabric: Fabric) -> None:
    fabric("run", "--backend", box.address, "--", "true")
    shown = fabric.json("show", "@last", "--json")["ran_with"]

    assert shown["python"].startswith(("/usr/bin/", "/usr/local/bin/"))
    assert not any(each.startswith("pytest==") for each in shown["packages"])


def test_jobs_are_compared_by_the_packages_that_ran_them(box: Box, fabric: Fabric, python: Path) -> None:
    fabric("run", "--backend", box.address, "--", "true")
    fabric("run", "--backend", box.address, "--set", f"python={python}", "--", "true")
    compared = fabric("diff", "@last", "@last~1", expect=1).stdout

    assert "imagined" in compared
    ran = fabric("rerun", "@last", "--detach")
    assert "differs" not in ran.stderr
    fabric("wait", "@last")
