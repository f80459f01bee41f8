"""Which cluster, context and namespace a name means, without asking any cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.contract.host import BackendOptions
from backends.kubernetes.api import Request
from backends.kubernetes.backend import KubernetesBackend
from backends.kubernetes.kubeconfig import Access, resolve
from backends.kubernetes.options import OPTIONS
from backends.kubernetes.rbac import all_rights, role_yaml
from runners.interface import AttemptRef
from runners.pod.names import labels
from tests.support.cluster import Space
from tests.support.command import Fabric
from workbench.errors import ConfigError, UnknownName

WriteConfig = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> WriteConfig:
    def write(
        *contexts: str, current: str = "", file: str = "config", user: Mapping[str, Any] | None = None
    ) -> str:
        named = {text.partition("=")[0]: text.partition("=")[2] for text in contexts}
        document = {
            "contexts": [
                {
                    "name": name,
                    "context": {"cluster": "c", "user": "u", **({"namespace": space} if space else {})},
                }
                for name, space in named.items()
            ],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "current-context": current,
        }
        path = tmp_path / file
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


def found(address: str, kubeconfig: str, **named: str) -> tuple[str, str]:
    access = resolve(address, environ={"KUBECONFIG": kubeconfig}, **named)
    return access.context, access.namespace


def test_the_current_context_and_its_namespace_are_meant_when_none_is_named(write: WriteConfig) -> None:
    config = write("dev=team", "prod", current="dev")

    assert found("k8s://", config) == ("dev", "team")
    assert found("", config) == ("dev", "team")
    assert found("k8s://prod", config) == ("prod", "default")
    assert found("kubernetes://prod/mine", config) == ("prod", "mine")
    assert found("k8s:///mine", config) == ("dev", "mine")


def test_what_stands_beside_the_address_counts_more(write: WriteConfig) -> None:
    config = write("dev=team", "prod", current="dev")

    assert found("k8s://dev/x", config, context="prod", namespace="y") == ("prod", "y")


def test_contexts_with_slashes_colons_and_blanks_are_found(write: WriteConfig) -> None:
    eks = "arn:aws:eks:eu-west-1:1:cluster/mine"
    config = write(eks, "default/api-example-com:6443/me", "two words", current=eks)

    assert found(f"k8s://{eks}", config) == (eks, "default")
    assert found(f"k8s://{eks}/team", config) == (eks, "team")
    assert found("k8s://default/api-example-com:6443/me/team", config) == (
        "default/api-example-com:6443/me",
        "team",
    )
    assert found("k8s://two%20words/team", config) == ("two words", "team")
    for context in (eks, "two words"):
        address = Access((config,), context, "team").address
        assert found(address, config) == (context, "team")


def test_of_several_files_the_first_that_says_something_counts(write: WriteConfig) -> None:
    first = write("a=one", current="", file="first")
    second = write("a=two", "b=three", current="b", file="second")

    both = f"{first}:{second}:/not/there"

    assert found("k8s://a", both) == ("a", "one")
    assert found("k8s://", both) == ("b", "three")


def test_a_context_that_is_not_there_is_refused_with_those_there_are(write: WriteConfig) -> None:
    with pytest.raises(UnknownName, match="no context 'nix'") as caught:
        found("k8s://nix/team", write("dev", "prod", current="dev"))

    assert "dev, prod" in caught.value.hint


def test_no_kubeconfig_is_reported_with_where_it_was_looked_for(clean_environment: Path) -> None:
    with pytest.raises(ConfigError, match="no KUBECONFIG is set"):
        resolve("k8s://", environ={"HOME": str(clean_environment)})
    with pytest.raises(ConfigError, match="/not/there \\(KUBECONFIG\\) is not there"):
        resolve("k8s://", environ={"KUBECONFIG": "/not/there"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not YAML"),
        ("- a", "not a kubeconfig"),
        ("contexts: 5", "not a kubeconfig"),
        ("", "no current"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_reported(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ConfigError, match=words):
        resolve("", kubeconfig=str(path), environ={})


def test_a_namespace_that_cannot_be_is_refused(write: WriteConfig) -> None:
    with pytest.raises(ConfigError, match="'Team_1' is not a valid name of a namespace"):
        found("k8s://dev/Team_1", write("dev"))


def test_a_job_keeps_what_its_shell_meant(
    write: WriteConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = write("dev=team", current="dev")
    monkeypatch.setenv("KUBECONFIG", Path(config).name)
    monkeypatch.chdir(tmp_path)
    frozen = KubernetesBackend(BackendOptions("k8s", "kubernetes", "k8s://")).frozen("pod")

    monkeypatch.setenv("KUBECONFIG", "/not/there")
    kept = KubernetesBackend(frozen)

    assert frozen.name == frozen.address == "k8s://dev/team"
    assert kept.access() == Access((config,), "dev", "team")
    assert kept.frozen("pod") == frozen


def test_a_named_cluster_keeps_its_name(write: WriteConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write("dev=team", current="dev"))
    options = BackendOptions("lab", "kubernetes", "", {"namespace": "mine"})

    frozen = KubernetesBackend(options).frozen("pod")

    assert (frozen.name, frozen.address) == ("lab", "k8s://dev/mine")


def test_a_credential_plugins_variables_are_kept_and_no_others(
    write: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}
    monkeypatch.setenv("KUBECONFIG", write("dev", current="dev", user=plugin))
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")

    options = KubernetesBackend(BackendOptions("k8s", "kubernetes")).frozen("pod").options

    assert options["environment"]["AWS_PROFILE"] == "work"
    assert "hidden" not in str(options)
    monkeypatch.setenv("KUBECONFIG", write("dev", current="dev"))
    assert "environment" not in KubernetesBackend(BackendOptions("k8s", "kubernetes")).frozen("pod").options


def test_a_context_or_namespace_of_what_is_no_cluster_is_refused(fabric: Fabric) -> None:
    ran = fabric("run", "--backend", "local", "--namespace", "team", "--", "true", expect=64)

    assert "'local' is not a cluster and has no namespace" in ran.stderr


def test_a_backend_may_be_of_the_type_k8s(
    fabric: Fabric, clean_environment: Path, write: WriteConfig
) -> None:
    (clean_environment / "config.toml").write_text('[backends.lab]\ntype = "k8s"\nnamespace = "team"\n')

    listed = fabric.json("backend", "list", "--json")

    assert [(each["name"], each["type"]) for each in listed] == [("local", "local"), ("lab", "kubernetes")]
    role = fabric("backend", "role", "lab", "--user", "me", KUBECONFIG=write("dev", current="dev"))
    assert "namespace: team" in role.stdout


def test_the_role_is_printed_without_reaching_the_cluster(fabric: Fabric, write: WriteConfig) -> None:
    config = write("dev=team", current="dev")

    ran = fabric("backend", "role", "k8s", "--user", "system:serviceaccount:ci:runner", KUBECONFIG=config)

    role, binding = yaml.safe_load_all(ran.stdout)
    assert role["kind"] == "Role" and role["metadata"]["namespace"] == "team"
    assert {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]} in role["rules"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "runner", "namespace": "ci"}]
    asked = fabric("backend", "role", "k8s", KUBECONFIG=config)
    assert "name: YOU" in asked.stdout and "--user" in asked.stderr


def test_the_documentation_has_the_role_and_every_setting() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()

    assert role_yaml("vision", "alice") in text
    for right in all_rights():
        assert right.needed or right.without in text
    for name, option in OPTIONS.items():
        assert f"| `{name}` |" in text and option.meaning in text


def test_the_documented_network_policy_is_accepted_and_selects_the_pods_of_jobs(space: Space) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    start = page.index("apiVersion: networking.k8s.io/v1")
    policy = yaml.safe_load(page[start : page.index("```", start)])
    path = f"/apis/networking.k8s.io/v1/namespaces/{space.namespace}/networkpolicies"

    made = space.admin._api.call(Request("POST", path, "create a policy", body=policy, creates=True))

    assert made["spec"]["podSelector"]["matchLabels"].items() <= labels(AttemptRef("h", "j", 1, 1)).items()
