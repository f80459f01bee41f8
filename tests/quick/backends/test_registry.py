"""Backends and runners are found by name; one that is missing or broken is named, and takes nothing down."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from backends.local.backend import LocalBackend
from backends.registry import backend_types, load_backend
from runners.process.runner import ProcessRunner
from runners.registry import load_runner, runner_names
from workbench.errors import BackendError, RunnerError, UnknownName
from workbench.terminal.errors import EXIT_LACKING, report


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    lines = "[fabric.{0}]\nbroken = no_such_module:Thing\nwrong = json:JSONDecoder\n"
    (info / "entry_points.txt").write_text(lines.format("backends") + lines.format("runners"))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_ours_are_found_by_name() -> None:
    assert "local" in backend_types()
    assert "process" in runner_names()
    assert isinstance(load_backend(BackendOptions("here", "local")), LocalBackend)
    assert load_runner("process") is ProcessRunner


def test_a_missing_one_is_reported_with_those_that_there_are() -> None:
    with pytest.raises(UnknownName, match="no backend of type 'moon'") as backend:
        load_backend(BackendOptions("m", "moon"))
    with pytest.raises(UnknownName, match="no runner 'rocket'") as runner:
        load_runner("rocket")

    assert "local" in backend.value.hint
    assert "process" in runner.value.hint


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("name", ["broken", "wrong"])
def test_a_broken_one_is_reported_and_the_others_still_load(name: str) -> None:
    with pytest.raises(BackendError, match=name):
        load_backend(BackendOptions("b", name))
    with pytest.raises(RunnerError, match=name):
        load_runner(name)

    assert isinstance(load_backend(BackendOptions("here", "local")), LocalBackend)


def test_too_little_memory_for_a_plugin_is_not_called_a_broken_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "large-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[fabric.runners]\nlarge = large_runner:Large\n")
    why = "/usr/lib/libhuge.so: failed to map segment from shared object"
    (tmp_path / "large_runner.py").write_text(f"raise ImportError({why!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ImportError, match="failed to map") as raised:
        load_runner("large")

    assert report(raised.value) == EXIT_LACKING
    assert "this command has no memory left" in capsys.readouterr().err
