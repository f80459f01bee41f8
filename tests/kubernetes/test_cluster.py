"""What a cluster is asked, against a real API: objects, watches, logs, commands, rights."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import backends.kubernetes.cluster
from backends.contract.cluster import (
    Absent,
    AlreadyThere,
    Change,
    ClusterStream,
    Conflict,
    Denied,
    Invalid,
    OverQuota,
)
from backends.kubernetes.cluster import KubernetesCluster
from tests.kubernetes.pods import start_pod
from tests.support.cluster import Space
from tests.support.waiting import until
from workbench.errors import BackendError


@pytest.fixture
def cluster(space: Space) -> Iterator[KubernetesCluster]:
    cluster = space.cluster()
    yield cluster
    cluster.close()


def secret(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "stringData": data,
    }


def all_of(stream: ClusterStream) -> tuple[bytes, bytes]:
    out, err = [], []
    while (part := stream.read(30.0)) is not None:
        out.append(part[0])
        err.append(part[1])
    return b"".join(out), b"".join(err)


def test_an_object_is_made_read_listed_changed_and_deleted(space: Space) -> None:
    cluster = space.admin
    made = cluster.create(secret("one", key="value"))

    assert made["kind"] == "Secret" and made["metadata"]["uid"]
    assert cluster.read("Secret", "one") == made
    assert [each["metadata"]["name"] for each in cluster.list("Secret", "a=b").items] == ["one"]
    assert cluster.list("Secret", "a=c").items == ()
    assert cluster.list("Secret", fields="metadata.name=one").items[0]["kind"] == "Secret"
    assert space.admin.patch("Secret", "one", {"metadata": {"labels": {"a": None, "c": "d"}}})["metadata"][
        "labels"
    ] == {"c": "d"}
    changes = [{"op": "add", "path": "/metadata/labels/e", "value": "f"}]
    changed = space.admin.patch("Secret", "one", changes, type="json")
    assert changed["metadata"]["labels"] == {"c": "d", "e": "f"}
    assert cluster.delete("Secret", "one") is True
    assert cluster.read("Secret", "one") is None
    assert cluster.delete("Secret", "one") is False


def test_a_name_that_is_taken_is_reported(cluster: KubernetesCluster) -> None:
    cluster.create(secret("one"))

    with pytest.raises(AlreadyThere, match="already exists"):
        cluster.create(secret("one"))


def test_an_object_is_replaced_only_as_it_was_read(space: Space) -> None:
    space.admin.create(secret("one", a="1"))
    read = dict(space.admin.read("Secret", "one") or {})
    space.admin.replace({**read, "stringData": {"a": "2"}})

    with pytest.raises(Conflict):
        space.admin.replace({**read, "stringData": {"a": "3"}})


def test_only_the_very_object_that_is_meant_is_deleted(space: Space) -> None:
    cluster = space.admin
    uid = cluster.create(secret("one"))["metadata"]["uid"]

    assert cluster.delete("Secret", "one", uid="00000000-0000-4000-8000-000000000000") is False
    assert cluster.read("Secret", "one") is not None
    assert cluster.delete("Secret", "one", uid=uid) is True


def test_an_object_that_cannot_be_is_refused_in_the_apis_words(cluster: KubernetesCluster) -> None:
    with pytest.raises(Invalid, match="lowercase"):
        cluster.create(secret("UPPER"))


def test_a_long_list_is_read_in_pages(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = space.admin
    for name in "abcde":
        cluster.create(secret(name))
    monkeypatch.setattr(backends.kubernetes.cluster, "PAGE", 2)

    assert [each["metadata"]["name"] for each in cluster.list("Secret", "a=b").items] == list("abcde")


def test_a_watch_tells_every_change_since_a_version_and_goes_on_where_it_ended(space: Space) -> None:
    admin = space.admin
    version = admin.list("Event").version
    admin.create(event("one", space.namespace))
    admin.patch("Event", "one", {"message": "changed"})
    watch = admin.watch("Event", "mine=yes", version, timeout_seconds=30)

    assert [event_of(next(watch)) for _ in range(2)] == [("ADDED", "one"), ("MODIFIED", "one")]
    watch.close()
    assert list(watch) == []
    admin.delete("Event", "one")
    with_rest = admin.watch("Event", "mine=yes", watch.version, timeout_seconds=30)
    assert event_of(next(with_rest)) == ("DELETED", "one")
    with_rest.close()


def event(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "labels": {"mine": "yes"}},
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": namespace},
        "reason": "Test",
        "message": "first",
        "type": "Normal",
    }


def event_of(change: Change) -> tuple[str, str]:
    assert change.kind == change.object["kind"] == "Event"
    return change.type, change.object["metadata"]["name"]


def test_a_watch_ends_with_its_time(cluster: KubernetesCluster) -> None:
    watch = cluster.watch("Pod", "", cluster.list("Pod").version, timeout_seconds=1)

    assert list(watch) == []


def test_a_blocked_watch_is_closed_from_another_thread(cluster: KubernetesCluster) -> None:
    watch = cluster.watch("Pod", "", cluster.list("Pod").version, timeout_seconds=3600)
    closer = threading.Timer(0.3, watch.close)
    closer.start()

    assert list(watch) == []
    closer.join()


def test_closing_the_cluster_ends_what_is_open(space: Space) -> None:
    cluster = space.cluster()
    watch = cluster.watch("Pod", "", cluster.list("Pod").version, timeout_seconds=300)
    closer = threading.Timer(0.3, cluster.close)
    closer.start()

    assert list(watch) == []
    closer.join()


def test_a_log_is_read_and_followed(cluster: KubernetesCluster) -> None:
    start_pod(cluster, "talks", "echo one; echo two; sleep 1; echo three; sleep 600")

    followed = cluster.logs("talks", "main", follow=True)
    text = b""
    while not text.endswith(b"three\n"):
        text += next(followed)
    followed.close()

    assert text == b"one\ntwo\nthree\n"
    assert list(followed) == []
    assert b"".join(cluster.logs("talks", "main", tail_lines=1)) == b"three\n"
    assert b"".join(cluster.logs("talks", "main", timestamps=True)).split(b"\n")[0].endswith(b"Z one")


def test_a_log_that_is_not_there_is_reported(cluster: KubernetesCluster) -> None:
    with pytest.raises(Absent, match="not found"):
        cluster.logs("nobody", "main")


def test_a_command_gives_its_output_its_errors_and_its_exit_code(cluster: KubernetesCluster) -> None:
    start_pod(cluster, "waits", "sleep 600")

    stream = cluster.exec("waits", "main", ["sh", "-c", "echo out; echo err >&2; exit 7"])

    assert all_of(stream) == (b"out\n", b"err\n")
    assert stream.wait() == 7
    assert cluster.exec("waits", "main", ["sh", "-c", "kill -9 $$"]).wait() == 137
    with pytest.raises(
        BackendError, match=r"container: exec: \"nonesuch\": executable file not found in \$PATH\.$"
    ):
        cluster.exec("waits", "main", ["nonesuch"]).wait()


def test_megabytes_go_to_a_commands_input_and_come_back_unchanged(cluster: KubernetesCluster) -> None:
    start_pod(cluster, "waits", "sleep 600")
    data = os.urandom(5 << 20)
    stream = cluster.exec("waits", "main", ["cat"], stdin=True)

    def write() -> None:
        stream.write(data)
        stream.close_input()

    writer = threading.Thread(target=write)
    writer.start()
    out, _ = all_of(stream)
    writer.join()

    assert stream.ends_input
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()
    assert stream.wait() == 0


def test_a_terminal_has_the_size_that_it_is_given(cluster: KubernetesCluster) -> None:
    start_pod(cluster, "waits", "sleep 600")
    stream = cluster.exec("waits", "main", ["sh"], stdin=True, terminal=True)
    stream.resize(33, 77)
    stream.write(b"tty; stty size; exit 3\n")

    out, err = all_of(stream)

    assert b"/dev/pts/" in out and b"33 77\r\n" in out
    assert err == b""
    assert stream.wait() == 3


def test_a_blocked_command_is_left_from_another_thread(cluster: KubernetesCluster) -> None:
    start_pod(cluster, "waits", "sleep 600")
    stream = cluster.exec("waits", "main", ["sleep", "600"])
    closer = threading.Timer(0.3, stream.close)
    closer.start()

    assert stream.read(60.0) is None
    closer.join()


def test_a_missing_right_is_named_with_the_role_to_ask_for(cluster: KubernetesCluster, space: Space) -> None:
    assert cluster.may("create", "pods", "exec")
    assert not cluster.may("create", "configmaps")
    with pytest.raises(
        Denied, match=f"may not create configmaps in the namespace {space.namespace}"
    ) as caught:
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    assert f"fabric backend role {space.address}" in caught.value.hint


def test_without_the_right_to_exec_a_command_is_refused(space: Space) -> None:
    start_pod(space.admin, "waits", "sleep 600")
    space.take_rights("pods/exec")
    cluster = space.cluster()

    def is_refused() -> bool:
        try:
            cluster.exec("waits", "main", ["true"]).wait()
        except Denied:
            return True
        return False

    until(is_refused, "the right to be gone")
    assert not space.cluster().may("create", "pods", "exec")


def test_a_full_quota_is_no_missing_right(cluster: KubernetesCluster, space: Space) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    space.admin.create({**quota, "spec": {"hard": {"count/secrets": "0"}}})

    def refusal() -> OverQuota | None:
        try:
            cluster.create(secret("one"))
        except OverQuota as error:
            return error
        cluster.delete("Secret", "one")
        return None

    until(refusal, "the quota to count")
    refused = refusal()
    assert refused is not None and "count/secrets=0" in refused.message


def test_a_namespace_that_is_not_there_is_reported(space: Space) -> None:
    from tests.support.cluster_health import administrator

    elsewhere = administrator("nowhere-at-all")

    with pytest.raises(Absent, match="no namespace nowhere-at-all"):
        elsewhere.create(secret("one"))
    elsewhere.close()
