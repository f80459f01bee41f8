"""Who may empty a host, and who is named as the one that does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from workbench.clock import now_us
from workbench.errors import NotAllowed, UsageError
from workbench.learner.queue import operators
from workbench.services.backends.setup import HostDrain, drain_host, end_job

HERE = BackendOptions("local", "local")


@pytest.fixture
def roots_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if os.getuid() != 0:
        pytest.skip("only root's file counts")
    monkeypatch.setenv("FABRIC_LEASES", str(tmp_path / "leases"))
    path = tmp_path / "etc" / "fabric" / "drain"
    monkeypatch.setattr("workbench.learner.queue.operators.DRAIN_FILE", str(path))
    monkeypatch.setattr("workbench.learner.queue.policy.DRAIN_FILE", str(path))
    return path


def test_root_empties_a_host_by_a_file_and_takes_it_back(roots_file: Path) -> None:
    assert drain_host(HERE, "look").document("local") == {
        "schema": "fabric.drain/1",
        "name": "local",
        "drained": False,
        "by": None,
        "since": None,
        "may": True,
        "unknown_operators": [],
        "trouble": "",
    }

    begun = drain_host(HERE, "begin")

    assert roots_file.is_file() and begun == drain_host(HERE, "look")
    assert begun.sentence("local").startswith(f"local is drained by {roots_file} since ")
    assert drain_host(HERE, "end").sentence("local") == "nobody drains local"
    assert not roots_file.exists()


def test_who_takes_back_what_is_another_ones_order_learns_whose_it_is(
    roots_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain_host(HERE, "begin")
    monkeypatch.setattr(operators, "end_drain", lambda folder: None)

    with pytest.raises(NotAllowed, match=r"since [\d:]+, which only root can take back"):
        drain_host(HERE, "end")


def test_a_cluster_has_means_of_its_own() -> None:
    with pytest.raises(UsageError, match="k8s is a cluster"):
        drain_host(BackendOptions("k8s", "kubernetes", "k8s://lab"), "begin")
    with pytest.raises(UsageError, match="k8s is a cluster"):
        end_job(BackendOptions("k8s", "kubernetes", "k8s://lab"), "training-k3f9x2mtq")


def test_what_root_wrote_wrongly_is_named() -> None:
    drain = HostDrain("ada", now_us(), may=False, unknown=("@gone", "bob"), trouble="line 1")

    assert drain.remarks() == [
        "its policy is not used: line 1",
        "its policy names operators that it does not know: @gone, bob",
    ]
