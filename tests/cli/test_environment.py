"""What is recorded of where a command was given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.command import Fabric
from workbench.learner.host.packages import installed_packages, write_environment
from workbench.services.submit.submit_environment import (
    active_interpreter,
    machine,
    passed_environment,
)


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_an_active_environment_goes_before_the_path(tmp_path: Path) -> None:
    venv, conda = executable(tmp_path / "venv/bin/python"), executable(tmp_path / "conda/bin/python")
    first = executable(tmp_path / "path/python3")
    path = {"PATH": str(tmp_path / "path")}

    assert active_interpreter({**path, "VIRTUAL_ENV": str(tmp_path / "venv")}) == venv
    assert active_interpreter({**path, "CONDA_PREFIX": str(tmp_path / "conda")}) == conda
    assert active_interpreter(path) == first
    assert active_interpreter({**path, "VIRTUAL_ENV": str(tmp_path / "removed")}) == first
    assert active_interpreter({"PATH": str(tmp_path / "nothing")}) == sys.executable


def test_what_stands_in_for_several_versions_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = executable(tmp_path / "pyenv/shims/python3")
    old = executable(tmp_path / "pyenv/versions/3.9.1/bin/python3")
    new = executable(tmp_path / "pyenv/versions/3.11.10/bin/python3")
    executable(tmp_path / "pyenv/versions/3.11.9/bin/python3")
    (tmp_path / "pyenv/version").write_text("3.9.1\n")
    path = {"PATH": str(tmp_path / "pyenv/shims")}
    project = tmp_path / "project" / "deep"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)

    assert active_interpreter(path) == old
    assert active_interpreter({**path, "PYENV_VERSION": "3.11"}) == new
    (tmp_path / "project" / ".python-version").write_text("3.11.10\n")
    assert active_interpreter(path) == new
    assert active_interpreter({**path, "PYENV_VERSION": "2.7"}) == shim


def test_packages_are_those_that_the_interpreter_has() -> None:
    packages = installed_packages(sys.executable)

    assert any(each.startswith("pytest==") for each in packages)
    assert packages == sorted(packages, key=str.lower)
    assert installed_packages("/nowhere/bin/python") == []


def test_a_password_in_a_proxy_is_a_secret_and_nothing_else_leaks() -> None:
    environ = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "CONDA_PREFIX": "/conda",
        "http_proxy": "http://me:hidden@proxy:3128",
        "no_proxy": "localhost",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "EDITOR": "vi",
    }

    plain, secret = passed_environment(environ)

    assert plain == {"PATH": "/bin", "LC_ALL": "C.UTF-8", "CONDA_PREFIX": "/conda", "no_proxy": "localhost"}
    assert secret == {"http_proxy": "http://me:hidden@proxy:3128"}


def test_the_machine_is_described() -> None:
    described = machine()

    assert described["cpus"] >= 1
    assert described["name"] == os.uname().nodename


def test_a_password_in_a_proxy_reaches_the_job_and_no_record(fabric: Fabric) -> None:
    proxy = "http://me:very-hidden@proxy:3128"

    ran = fabric(
        "run", "--", 'test "$http_proxy" = "$(cat proxy)" && echo same', http_proxy=proxy, expect=None
    )
    (fabric.folder / "proxy").write_text(proxy)
    again = fabric("run", "--", 'test "$http_proxy" = "$(cat proxy)" && echo same', http_proxy=proxy)

    assert ran.returncode != 0
    assert again.stdout == "same\n"
    assert "very-hidden" not in fabric("show", "@last", "--json").stdout


def test_a_python_is_described_by_the_names_of_its_folders(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.9" / "site-packages"
    for name in ("torch-2.3.0.dist-info", "old-1.0-py3.9.egg-info", "torch", "no_version.dist-info"):
        (site / name).mkdir(parents=True)
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("")
    python.chmod(0o755)
    path = tmp_path / "environment.json"

    write_environment(str(path), {"format": 1, "python": ""}, {"PATH": f"/nowhere:{python.parent}"})

    assert json.loads(path.read_text()) == {
        "format": 1,
        "python": str(python),
        "python_version": "3.9",
        "packages": ["old==1.0", "torch==2.3.0"],
    }


def test_packages_that_were_resolved_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"

    write_environment(str(path), {"python": sys.executable, "packages": ["a==1"]}, {})

    assert json.loads(path.read_text())["packages"] == ["a==1"]
