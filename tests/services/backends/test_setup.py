"""A backend is set up: its settings, the role that a cluster's jobs need, and what is removed in the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.contract.host import BackendOptions
from tests.services.stored import BOTH, copied, submitted
from workbench.errors import (
    BackendUnreachable,
    ConfigError,
    FabricError,
    HomeNotBound,
    RunnerError,
    TryAgain,
    UnknownName,
    UsageError,
)
from workbench.job import Reason, State
from workbench.services.backends.installed import backend_types, has_shell, runner_names
from workbench.services.backends.placement import backend_options
from workbench.services.backends.setup import (
    UNKNOWN_USER,
    RoleGrant,
    new_backend,
    parse_settings,
    purge,
    role,
)
from workbench.store.db.database import Store
from workbench.store.updates.jobs import step

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: lab, context: {cluster: c, user: u, namespace: team}}]
current-context: lab
"""


# Settings


@pytest.mark.parametrize(
    ("texts", "given", "settings"),
    [
        ([], {}, {}),
        ([], {"a": 1}, {"a": 1}),
        (["a=b"], {"a": 1, "c": 2}, {"a": "b", "c": 2}),
        (["a="], {}, {"a": ""}),
        (["a=b=c d\n"], {}, {"a": "b=c d\n"}),
        (["größe=ä"], {}, {"größe": "ä"}),
        (["t.a=1", "t.b=2"], {}, {"t": {"a": "1", "b": "2"}}),
        (["t.b=2"], {"t": {"a": 1}}, {"t": {"a": 1, "b": "2"}}),
        (["a=1", "a=2"], {}, {"a": "2"}),
    ],
)
def test_options_go_over_what_is_given(
    texts: list[str], given: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert parse_settings(texts, given) == settings


@pytest.mark.parametrize("text", ["", "a", "=b", "a b"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_settings(["good=1", text], {})

    assert refused.value.message == f"--option {text}: a setting is KEY=VALUE"


@pytest.mark.parametrize(("texts", "given"), [(["t.a=1"], {"t": 5}), (["t=5", "t.a=1"], {})])
def test_a_key_of_what_is_no_table_is_refused(texts: list[str], given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--option t\.a=1: t has a value of its own"):
        parse_settings(texts, given)


def test_what_is_given_stays_as_it_is() -> None:
    given = {"t": {"a": 1}}

    parse_settings(["t.b=2", "c=3"], given)

    assert given == {"t": {"a": 1}}


# A new backend


@pytest.mark.parametrize(
    ("address", "kind"),
    [("ssh://me@box:2222", "ssh"), ("k8s://lab/team", "kubernetes")],
)
def test_a_new_backend_has_its_name_address_and_settings(address: str, kind: str) -> None:
    settings: Mapping[str, Any] = {"gpus": "2"}
    options = new_backend("größe", address, settings)

    assert (options.name, options.type, options.options) == ("größe", kind, settings)


@pytest.mark.parametrize("address", ["ftp://box", "nothing://x"])
def test_an_address_that_nothing_reaches_names_what_is_installed(address: str) -> None:
    with pytest.raises(UnknownName, match=f"nothing that is installed reaches '{address}'") as refused:
        new_backend("box", address, {})

    assert refused.value.hint == f"installed are {', '.join(backend_types())}"


def test_a_word_that_is_no_address_and_no_backend_is_refused() -> None:
    with pytest.raises(UnknownName, match="gpubox"):
        new_backend("box", "gpubox", {})


# The role of a cluster's jobs


@pytest.fixture
def kubeconfig(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig of a cluster that does not answer."""
    file = clean_environment / "kubeconfig"
    file.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


def test_a_role_is_for_the_namespace_and_the_user_that_is_named(kubeconfig: Path) -> None:
    grant = role(backend_options("k8s://lab"), "ada@example.com")

    assert grant == RoleGrant("team", "ada@example.com")
    document = grant.document()
    assert document["schema"] == "fabric.role/1"
    assert [each["kind"] for each in document["objects"]] == ["Role", "RoleBinding"]
    assert all(each["metadata"]["namespace"] == "team" for each in document["objects"])
    assert "ada@example.com" in grant.yaml()


def test_a_cluster_that_does_not_answer_leaves_the_user_to_be_filled_in(kubeconfig: Path) -> None:
    grant = role(backend_options("k8s://lab"))

    assert (grant.namespace, grant.user) == ("team", UNKNOWN_USER)
    assert grant.error is not None
    assert UNKNOWN_USER in grant.yaml()


def test_without_a_kubeconfig_there_is_no_role(clean_environment: Path) -> None:
    with pytest.raises(ConfigError):
        role(backend_options("k8s://lab"), "ada")


def test_what_is_no_cluster_needs_no_role() -> None:
    with pytest.raises(UsageError, match="'local' is not a cluster and needs no role") as refused:
        role(backend_options("local"))

    assert refused.value.hint == "such as k8s://context/namespace"


# What is removed in the end


def test_this_machine_is_not_removed(store: Store) -> None:
    with pytest.raises(ConfigError, match="this machine keeps the home itself") as refused:
        purge(backend_options("local"))

    assert refused.value.hint == "see fabric gc"
    assert store.home.path.is_dir()


def test_a_copy_removes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copied(store.home, store.home.path.with_name("copy"))
    monkeypatch.setenv("FABRIC_HOME", str(copy.path))

    with pytest.raises(HomeNotBound, match="is a copy of the home"):
        purge(backend_options("ssh://me@127.0.0.1:1"))


def test_a_host_where_an_open_job_has_files_is_not_removed(store: Store) -> None:
    text = "name: a\nframework: {name: custom, command: 'true'}\nlearners: 2\n"
    job = submitted(store, text, target=BOTH)
    submitted(store, text, target=BOTH, state=State.COMPLETED)

    for address in ("ssh://127.0.0.1:1", "ssh://me@127.0.0.1:1"):
        with pytest.raises(TryAgain) as refused:
            purge(BackendOptions("any", "ssh", address))
        assert refused.value.message == f"any has files of {job.id}, which has not ended"

    # Another one is asked what runs there, as this one is once the job has ended.
    with pytest.raises(BackendUnreachable):
        purge(BackendOptions("any", "ssh", "ssh://127.0.0.1:2"))
    step(store, job.id, 1, State.FAILED, Reason(""))
    with pytest.raises(BackendUnreachable):
        purge(BackendOptions("any", "ssh", "ssh://127.0.0.1:1"))


# What is installed


def test_what_is_installed_is_named() -> None:
    assert {"local", "ssh", "kubernetes"} <= set(backend_types())
    assert {"process", "container", "pod"} <= set(runner_names())


def test_runners_say_whether_a_shell_can_be_opened() -> None:
    assert {name: has_shell(name) for name in ("process", "container", "pod")} == dict.fromkeys(
        ("process", "container", "pod"), True
    )


def test_a_runner_that_is_not_installed_is_named() -> None:
    with pytest.raises(UnknownName, match="proces") as refused:
        has_shell("proces")

    assert isinstance(refused.value, FabricError) and not isinstance(refused.value, RunnerError)
