"""One search over all backends of a machine: process, container, host over SSH and namespace of a cluster."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from tests.kubernetes.jobs import OPTIONS
from tests.kubernetes.relay import Relay
from tests.support.box import Box
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.images import DEBIAN as OF_ENGINE
from tests.support.pod_images import DEBIAN
from tests.support.waiting import until

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
LOOK_SECONDS = 1.0
"""How often the search is looked at: each look is a command, and trials take seconds."""
EVERYWHERE = ("process@local", "container@local", "process@box", "cluster")
SEARCH: dict[str, Any] = {
    "method": "asha",
    "metric": "accuracy",
    "goal": "maximize",
    "time_metric": "epoch",
    "max_time": 6,
    "divisor": 3,
    "max_trials": 9,
    "max_concurrent": 8,
    "backends": list(EVERYWHERE),
    "params": {"rate": {"loguniform": [0.001, 0.2]}},
}


@pytest.fixture
def link(box: Box, space: Space, engine: None) -> Iterator[Relay]:
    """The configuration names all backends; the way to the host can be cut."""
    with closing(docker.from_env()) as client:
        client.images.get(OF_ENGINE).tag(DEBIAN)
    relay = Relay(box.daemon.address, box.daemon.port)
    key = box.daemon.known_line().split(" ", 1)[1]
    box.known_hosts.write_text(f"[{box.daemon.address}]:{relay.port} {key}")
    box.config.write_text(box.config.read_text().replace(f"Port {box.daemon.port}", f"Port {relay.port}"))
    options = {**OPTIONS, "kubeconfig": str(space.kubeconfig)}
    lines = [
        "[backends.box]",
        'address = "ssh://box"',
        "[backends.cluster]",
        'type = "kubernetes"',
        f'address = "{space.address}"',
        *(f"{key} = {json.dumps(value)}" for key, value in options.items()),
    ]
    Path(os.environ["FABRIC_CONFIG"]).write_text("\n".join(lines) + "\n")
    yield relay
    relay.end()


def trials(fabric: Fabric) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fabric.json("experiment", "trials", "@last", "--json")
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cut_off_seconds",
    [
        pytest.param(0.0, id="until others have ended"),
        pytest.param(
            60.0, id="for a minute", marks=pytest.mark.soak("a longer cut; the gate has a short one")
        ),
    ],
)
def test_the_digits_are_searched_on_all_backends_at_once_while_one_is_cut_off(
    fabric: Fabric, link: Relay, cut_off_seconds: float
) -> None:
    manifest = {
        **yaml.safe_load((DIGITS / "manifest.yml").read_text()),
        "search": SEARCH,
        "params": {"epochs": SEARCH["max_time"]},
    }
    manifest["framework"]["version"] = DEBIAN
    (fabric.folder / "manifest.yml").write_text(json.dumps(manifest))
    fabric("run", "-q", "manifest.yml", "--set", f"code={DIGITS}")

    def begun() -> Counter[str]:
        return Counter(one["backend"] for one in trials(fabric) if one["backend"])

    until(
        lambda: begun().keys() == {"local", "box", "cluster"},
        lambda: f"all to be used: {begun()}",
        seconds=120,
        every=LOOK_SECONDS,
    )
    link.hold()
    cut_off_at = time.monotonic()
    ended = {one["id"] for one in trials(fabric) if one["state"] not in ("RUNNING", "WAITING")}

    def go_on_elsewhere() -> bool:
        over = [
            one
            for one in trials(fabric)
            if one["state"] not in ("RUNNING", "WAITING") and one["id"] not in ended
        ]
        return {"local", "cluster"} <= {one["backend"] for one in over}

    until(
        go_on_elsewhere,
        lambda: f"trials of the other backends to end: {trials(fabric)}",
        seconds=180,
        every=LOOK_SECONDS,
    )
    until(
        lambda: time.monotonic() > cut_off_at + cut_off_seconds,
        "the minute to be over",
        seconds=2 * cut_off_seconds,
    )
    link.release()
    shown: dict[str, Any] = {}

    def is_over() -> bool:
        shown.update(fabric.json("experiment", "show", "@last", "--json"))
        return bool(shown["state"] != "RUNNING")

    until(is_over, lambda: f"the search to end: {shown} {trials(fabric)}", seconds=300, every=LOOK_SECONDS)
    assert shown["state"] == "COMPLETED", (shown, trials(fabric))
    found = trials(fabric)
    assert len(found) == SEARCH["max_trials"]
    assert {one["state"] for one in found} <= {"COMPLETED", "STOPPED"}
    runners = {fabric.json("show", one["id"], "--json")["runner"] for one in found}
    assert runners == {"process", "container", "pod"}
    assert shown["best"]["best"] > 0.8
