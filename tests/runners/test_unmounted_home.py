"""A launch whose home is on a mount that has just ended: nothing is made in the bare mount point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import request_of
from runners.process.runner import ProcessRunner
from tests.runners.jobs import HOME
from tests.support.fuse import FuseMount, sshfs_mount
from workbench.errors import TryAgain
from workbench.learner.platform import files
from workbench.paths import Home
from workbench.store.db.identity import make_home


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[FuseMount]:
    with sshfs_mount(tmp_path / "mnt") as mount:
        yield mount


@pytest.mark.parametrize("inside", ["", "home"])
def test_a_launch_makes_nothing_in_a_bare_mount_point(
    mount: FuseMount, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_marks", {})
    home = Home(mount.point / inside)
    make_home(home)
    files.make_nothing_without(str(home.path), home.identity.name)
    with closing(LocalHost(home)) as host, closing(ProcessRunner(host, home_uuid=HOME)) as runner:
        plan = runner.plan(request_of("true", home=HOME))
        mount.unmount()

        with pytest.raises(TryAgain, match=r"is not there now: .*home.json is missing"):
            runner.launch(plan, lambda *_, **__: None)
        bare = list(mount.point.rglob("*"))
        mount.mount()
        host.call("make_folders", paths=[str(home.jobs / "training-1" / "results")])

    assert bare == []
    assert (mount.kept / inside / "jobs" / "training-1" / "results").is_dir()


def test_a_mount_whose_server_died_is_not_there_either(
    mount: FuseMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_marks", {})
    home = Home(mount.point / "home")
    make_home(home)
    files.make_nothing_without(str(home.path), home.identity.name)
    mount.end()

    with closing(LocalHost(home)) as host, pytest.raises(TryAgain, match="is not there now"):
        host.call("make_folders", paths=[str(home.jobs / "training-1")])
