"""Hosts that run one job together are named with a plus, and checked before anything is reached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench.config import backend, host_of, members_of
from workbench.config.model import local_backend
from workbench.config.types import Config
from workbench.errors import UnknownName, UsageError
from workbench.store.db.rows import TargetRef


def _entry(name: str, type: str, address: str) -> dict[str, Any]:
    return {"name": name, "type": type, "address": address, "options": {"root": f"/{name}"}}


CONFIG = Config(
    backends={
        "local": local_backend(),
        "box1": _entry("box1", "ssh", "ssh://one"),
        "box2": _entry("box2", "ssh", "ssh://two"),
        "again": _entry("again", "ssh", "ssh://two"),
        "lab": _entry("lab", "kubernetes", "k8s://lab"),
    },
    defaults={},
    file=Path("config.toml"),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("box1", ["box1"]),
        ("box1 + box2", ["box1", "box2"]),
        ("box1+", ["box1", ""]),
        ("ssh://me+x@one", ["ssh://me+x@one"]),
        ("ssh://me+x@one+box2+ssh://a+b@two", ["ssh://me+x@one", "box2", "ssh://a+b@two"]),
        ("ssh://one + local", ["ssh://one", "local"]),
        ("ssh://one+k8s", ["ssh://one", "k8s"]),
        ("k8s://me+dev/ns", ["k8s://me+dev/ns"]),
        ("foo+ssh://one", ["foo+ssh://one"]),
        ("box1+ssh://one", ["box1", "ssh://one"]),
        ("box1+foo+ssh://one+box2", ["box1", "foo+ssh://one", "box2"]),
    ],
)
def test_a_plus_divides_names_and_addresses_and_is_otherwise_part_of_one(text: str, names: list[str]) -> None:
    assert members_of(text, CONFIG) == names


def test_one_address_with_a_plus_is_what_it_was() -> None:
    for address, kind in (("k8s://me+dev/ns", "kubernetes"), ("foo+ssh://one", "foo+ssh")):
        assert backend(address, CONFIG) == {"name": address, "type": kind, "address": address, "options": {}}


def test_the_group_has_the_entries_of_its_members_in_the_order_given() -> None:
    found = backend(" box2+local", CONFIG)

    assert (found["name"], found["type"], found["address"]) == ("box2+local", "multinode", "ssh://two+local")
    assert found["options"]["members"] == [CONFIG.backends["box2"], local_backend()]


def test_a_group_with_another_host_of_the_same_name_is_another_machine() -> None:
    moved = replace(CONFIG, backends={**CONFIG.backends, "box2": _entry("box2", "ssh", "ssh://elsewhere")})
    machines = {
        TargetRef(found["name"], found["type"], "multinode-process", found["address"]).machine
        for found in (backend("box1+box2", config) for config in (CONFIG, moved))
    }
    assert machines == {"multinode ssh://one+ssh://two", "multinode ssh://one+ssh://elsewhere"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("box1+", "a name is missing beside a +"),
        ("+box1", "a name is missing beside a +"),
        ("box1+box1", "box1 is named twice"),
        ("box2+again", "box2 and again are the same host"),
        ("box1+ssh://one", "box1 and ssh://one are the same host"),
        ("box1+ssh://one:22", "box1 and ssh://one:22 are the same host"),
        ("box1+ssh://me@One/", "box1 and ssh://me@One/ are the same host"),
        ("box1+lab", "lab is a cluster"),
        ("k8s+box1", "k8s is a cluster"),
        ("+".join(f"ssh://host{number}" for number in range(17)), "16 hosts at most"),
    ],
)
def test_what_cannot_run_a_job_together_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f".*{why.replace('+', '[+]')}"):
        backend(text, CONFIG)


def test_another_port_or_type_is_another_host() -> None:
    assert backend("box1+ssh://one:2222", CONFIG)["name"] == "box1+ssh://one:2222"
    assert host_of("ssh", "ssh://[::1]") == host_of("ssh", "ssh://me@[::1]:22") == ("ssh", "[::1]", 22)
    assert host_of("local", "local") == ("local", "local", 0)


def test_a_member_that_nobody_knows_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="no backend 'bok2'") as raised:
        backend("box1+bok2", CONFIG)
    assert "box2" in raised.value.hint
