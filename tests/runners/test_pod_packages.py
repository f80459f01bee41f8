"""The packages that a pod has installed are recorded, though its log cannot be read at once. No cluster is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from backends.contract.cluster import Absent, Cluster, Denied
from runners.pod import results
from workbench.errors import BackendUnreachable, FabricError
from workbench.learner.pod.requirements import PACKAGE

POD: dict[str, Any] = {"metadata": {"name": "pod", "annotations": {"fabric.requirements": "file"}}}


class Logs:
    """A cluster whose log can be read after so many failures."""

    def __init__(self, *failures: FabricError) -> None:
        self.failures = list(failures)

    def logs(self, pod: str, container: str) -> Iterator[bytes]:
        """Give the log of a pod, or what is wrong in the middle of it."""
        yield f"collects\n{PACKAGE}numpy==2.0\n".encode()
        if self.failures:
            raise self.failures.pop(0)
        yield f"{PACKAGE}torch==2.6\n".encode()


def recorded(cluster: Logs, folder: Path) -> list[str]:
    results._record_image(cast(Cluster, cluster), POD, folder / "environment.json")
    packages: list[str] = json.loads((folder / "environment.json").read_text())["packages"]
    return packages


def test_a_log_that_is_cut_off_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_LOOK_SECONDS", 0.0)

    found = recorded(Logs(BackendUnreachable("cut off"), BackendUnreachable("cut off")), tmp_path)

    assert found == ["numpy==2.0", "torch==2.6"]


def test_packages_whose_log_cannot_be_read_are_not_recorded_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_LOG_SECONDS", 0.0)
    cluster = Logs(BackendUnreachable("node-1 does not answer"))

    with pytest.raises(BackendUnreachable, match="node-1"):
        recorded(cluster, tmp_path)

    assert not (tmp_path / "environment.json").exists()
    assert recorded(cluster, tmp_path) == ["numpy==2.0", "torch==2.6"]


@pytest.mark.parametrize("error", [Absent("no such pod"), Denied("not allowed")])
def test_a_log_that_nobody_can_read_is_asked_for_once(error: FabricError, tmp_path: Path) -> None:
    cluster = Logs(error, BackendUnreachable("asked for again"))

    assert recorded(cluster, tmp_path) == []
    assert len(cluster.failures) == 1
