"""Guard rails for every test: a home of its own, a clean environment, nothing of the developer's is read or written."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from backends.contract.prompts import CREDENTIALS
from fabric_workbench import GARBAGE_THRESHOLDS
from tests.support.folders import REAL_HOME, is_kept, make_folder
from tests.support.forked import FORKS
from tests.support.kept_agents import agents_removed as agents_removed
from tests.support.waiting import PATIENCE, patience
from workbench.paths import Home
from workbench.services import open_store

pytest_plugins = (
    "tests.gate.leftovers",
    "tests.gate.lanes",
    "tests.gate.record",
    "tests.gate.order",
    "tests.gate.workers",
    "tests.support.command",
    "tests.support.box",
    "tests.support.engine",
    "tests.support.cluster",
)

# A slow machine is no fault of the code; CI tries the same examples every time, developers new ones.
hypothesis.settings.register_profile("fabric", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("fabric")


def pytest_configure() -> None:
    """Take signals that a background shell or nohup told us to ignore: what is tested would inherit that."""
    defaults = dict.fromkeys((signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM), signal.SIG_DFL)
    for number, handler in (defaults | {signal.SIGINT: signal.default_int_handler}).items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    FORKS.take_over_controllers({name: value for name, value in os.environ.items() if is_kept(name)})


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage until all tests are collected: importing them makes many objects and leaves few."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test as much more time as tests wait longer."""
    if PATIENCE != 1:
        for item in items:
            limit = item.get_closest_marker("timeout")
            seconds = limit.args[0] if limit else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(patience(seconds)), append=False)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what thousands of collected tests are made of out of every later garbage collection.

    With all of the suite's objects collections took a third of the screens' time. They are as rare as fabric's own.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip a failure where ``FABRIC_TEST_NO_SKIP`` is set, unless its reason matches: CI leaves nothing out."""
    report = yield
    allowed = os.environ.get("FABRIC_TEST_NO_SKIP")
    if allowed is not None and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not (allowed and re.search(allowed, reason)):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be skipped: {reason}"
    return report


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short temporary folder that HOME and all of fabric's folders lie in."""
    root = make_folder()
    for name in list(os.environ):
        if not is_kept(name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", os.environ.get("UV_CACHE_DIR") or str(REAL_HOME / ".cache" / "uv"))
    if (settings := REAL_HOME / ".config" / "pip" / "pip.conf").exists():
        monkeypatch.setenv("PIP_CONFIG_FILE", os.environ.get("PIP_CONFIG_FILE") or str(settings))
    for listener in ("_report_copy", "_note", "_attend"):  # a command that ran in this process has set them
        monkeypatch.setattr(open_store, listener, None)
    (root / "run").mkdir(mode=0o700)
    (root / "leases").mkdir(mode=0o1777)
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("FABRIC_HOME", str(root / "fabric"))
    monkeypatch.setenv("FABRIC_CONFIG", str(root / "config.toml"))
    monkeypatch.setenv("FABRIC_LEASES", str(root / "leases"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "run"))
    # Jobs that a test puts into a store must not be started because a command reads them.
    monkeypatch.setenv("FABRIC_NO_CONTROLLER", "1")
    # Else a test that names an image would run in a container wherever an engine happens to answer.
    monkeypatch.setenv("DOCKER_HOST", f"unix://{root}/no-engine.sock")
    # What was typed, and who can be asked, is the process's, and this one does many tests.
    monkeypatch.setattr(CREDENTIALS, "_answers", {})
    CREDENTIALS.set_prompter(None)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def home(clean_environment: Path) -> Home:
    """The home that ``FABRIC_HOME`` names; its folder is not made yet."""
    return Home(clean_environment / "fabric")
