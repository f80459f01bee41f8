"""A test cluster that lost a part gets it back before the next test; one that stays broken fails tests at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cluster_health as health
from tests.support.cluster import cluster_held, why_not
from tests.support.cluster_health import ClusterBroken, control, dead_parts, ensure_cluster, fault


@pytest.fixture
def alone() -> Iterator[None]:
    if reason := why_not():
        pytest.skip(reason)
    if not health.SCRIPT:
        pytest.skip("no Kubernetes that may be harmed: FABRIC_TEST_CLUSTER names no program")
    with cluster_held(alone=True):
        yield


@pytest.mark.parametrize("part", ["kubelet", "kube-scheduler"])
def test_a_part_that_died_is_started_again(alone: None, part: str) -> None:
    control("stop", part, "KILL")
    assert dead_parts() == [part]
    assert part in fault()

    ensure_cluster()

    assert fault() == ""


def test_a_cluster_that_stays_broken_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cluster"
    program.write_text("echo no instance of inotify is left >&2; exit 1\n")
    for folder in ("run", "log"):
        (tmp_path / folder).mkdir()
    (tmp_path / "log" / "kubelet.log").write_text(
        "first\nfailed to start: inotify_init: too many open files\n"
    )
    for name, value in {
        "SCRIPT": str(program),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "CACHE": tmp_path,
    }.items():
        monkeypatch.setattr(health, name, value)
    monkeypatch.setattr(health, "BACK_SECONDS", 0.0)

    with pytest.raises(
        ClusterBroken, match=r"lacks etcd.*kubelet\nthe kubelet's log ends so:\nfirst\nfailed to start"
    ):
        ensure_cluster()
    monkeypatch.setattr(health, "BACK_SECONDS", 3600.0)
    with pytest.raises(ClusterBroken, match="it was waited for already"):
        ensure_cluster()  # it would wait for an hour
