"""A container that waited is completed and created by its agent; the engine is one in memory."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.learner.guard import container_creation as creation
from workbench.learner.platform.engine_client import EngineRefused
from workbench.learner.queue.allocation import CHOSEN

SECRETS_TARGET = "/.fabric/secrets.sh"


class MemoryEngine:
    """Keeps containers and networks by name, and what was asked."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.networks: set[str] = set()
        self.attached: set[str] = set()
        """Those of them that containers use."""
        self.images: dict[str, str] = {}
        """Their ids by name."""
        self.has_addresses = True
        self.asked: list[tuple[str, str, Any]] = []

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        self.asked.append((method, target, body))
        kind, _, rest = target.partition("/")
        name = rest.partition("=")[2] or rest.removesuffix("/json")
        if target.startswith("containers/create"):
            if name in self.containers:
                raise EngineRefused(409, "Conflict")
            self.containers[name] = {"Config": body, "State": {"Status": "created"}}
        elif target == "networks/create":
            if not self.has_addresses:
                raise EngineRefused(500, "could not find an available, non-overlapping IPv4 address pool")
            self.networks.add(body["Name"])
        elif kind == "images" and name not in self.images:
            raise EngineRefused(404, "No such image")
        elif kind == "images":
            return {"Id": self.images[name]}
        elif kind == "networks" and name in self.attached and method == "DELETE":
            raise EngineRefused(403, "network has active endpoints")
        elif kind == "networks" and name not in self.networks:
            raise EngineRefused(404, "no such network")
        elif kind == "networks" and method == "DELETE":
            self.networks.remove(name)
        elif kind == "networks":
            return {"Name": name}
        elif kind == "containers":
            if name not in self.containers:
                raise EngineRefused(404, "no such container")
            return self.containers[name]
        return None

    def ensure(self, document: dict[str, Any], home: str = "home") -> bool:
        return creation.ensure(
            self.ask,
            "one",
            document,
            (),
            home=home,
            is_podman=False,
            remove=lambda: self.containers.clear(),
        )


def test_a_name_that_stays_in_use_without_a_container_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "_NAME_PAUSE_SECONDS", 0.0)

    def ask(method: str, target: str, body: Any = None) -> Any:
        raise EngineRefused(409 if method == "POST" else 404, "the name is already in use")

    with pytest.raises(EngineRefused, match="it has no container one, and its name is in use"):
        creation.ensure(ask, "one", document(), (), home="home", is_podman=False, remove=lambda: None)


def document(**host: Any) -> dict[str, Any]:
    return {
        "Env": ["A=1", f"CUDA_VISIBLE_DEVICES={CHOSEN}", f"NVIDIA_VISIBLE_DEVICES={CHOSEN}"],
        "Labels": {"fabric.home": "home"},
        "HostConfig": host,
    }


def test_gpus_and_secrets_are_filled_in_and_nothing_else_is_changed() -> None:
    request = {"Driver": "", "DeviceIDs": [CHOSEN] * 2, "Capabilities": [["gpu"]]}
    planned = document(
        DeviceRequests=[request],
        Mounts=[{"Source": "/code", "Target": "/job"}, {"Source": CHOSEN, "Target": SECRETS_TARGET}],
    )

    found = creation.filled(planned, ["GPU-1", "GPU-2"], "/dev/shm/me/one")

    assert found["HostConfig"]["DeviceRequests"] == [{**request, "DeviceIDs": ["GPU-1", "GPU-2"]}]
    assert [one["Source"] for one in found["HostConfig"]["Mounts"]] == ["/code", "/dev/shm/me/one.sh"]
    gpus = "GPU-1,GPU-2"
    assert found["Env"] == ["A=1", f"CUDA_VISIBLE_DEVICES={gpus}", f"NVIDIA_VISIBLE_DEVICES={gpus}"]
    assert found["Labels"]["fabric.slots"] == gpus
    assert planned == document(
        DeviceRequests=[request],
        Mounts=[{"Source": "/code", "Target": "/job"}, {"Source": CHOSEN, "Target": SECRETS_TARGET}],
    )


def test_secrets_are_filled_into_mounts_with_labels_of_selinux() -> None:
    planned = document(Binds=["/code:/job:rw,z", f"{CHOSEN}:{SECRETS_TARGET}:ro,z"])

    found = creation.filled(planned, [], "/dev/shm/me/one")

    assert found["HostConfig"]["Binds"] == ["/code:/job:rw,z", f"/dev/shm/me/one.sh:{SECRETS_TARGET}:ro,z"]


@pytest.mark.parametrize(("status", "is_kept"), [("created", False), ("running", True)])
def test_a_container_of_a_start_that_was_cut_off_is_replaced_unless_it_is_equal_or_runs(
    status: str, is_kept: bool
) -> None:
    engine = MemoryEngine()
    first, second = (creation.filled(document(CpuShares=number), [], "") for number in (1, 2))
    assert engine.ensure(first) and engine.ensure(first)
    engine.containers["one"]["State"]["Status"] = status

    assert engine.ensure(second) is not is_kept

    assert engine.containers["one"]["Config"] == (first if is_kept else second)


def test_a_container_of_another_home_is_left_alone() -> None:
    engine = MemoryEngine()
    engine.ensure(creation.filled(document(), [], ""))

    with pytest.raises(creation.NameTaken):
        engine.ensure(creation.filled(document(), [], ""), home="another")


def test_the_first_learner_makes_the_network_and_the_others_wait_for_it() -> None:
    engine = MemoryEngine()
    network = {"name": "net", "labels": {}}
    with pytest.raises(creation.NotYet, match="not made by its first learner"):
        creation.prepare_network(engine.ask, {**network, "make": False})

    creation.prepare_network(engine.ask, {**network, "make": True})
    creation.prepare_network(engine.ask, {**network, "make": True})
    creation.prepare_network(engine.ask, {**network, "make": False})

    assert [target for _, target, _ in engine.asked if "create" in target] == ["networks/create"]


@pytest.mark.parametrize(
    ("attached", "left"), [(set(), {"learner-x-a2"}), ({"learner-x-a1"}, {"learner-x-a1", "learner-x-a2"})]
)
def test_the_network_of_the_attempt_before_is_removed_unless_the_engine_keeps_it(
    attached: set[str], left: set[str]
) -> None:
    engine = MemoryEngine()
    engine.networks, engine.attached = {"learner-x-a1"}, attached
    network = {"name": "learner-x-a2", "earlier": "learner-x-a1", "labels": {}, "make": True}

    creation.prepare_network(engine.ask, network)
    creation.prepare_network(engine.ask, network)

    assert engine.networks == left


def test_a_network_without_addresses_is_tried_again() -> None:
    engine = MemoryEngine()
    engine.has_addresses = False

    with pytest.raises(creation.NotYet) as raised:
        creation.prepare_network(engine.ask, {"name": "net", "labels": {}, "make": True})

    assert raised.value.reason[1] == "S100"


@pytest.mark.parametrize(
    ("status", "message", "text", "code"),
    [
        (404, "No such image: sha256:1", "The image app was removed in the meantime.", "S101"),
        (
            400,
            "invalid mount config: bind source path does not exist: /x",
            "does not see this machine",
            "C104",
        ),
        (400, "invalid hostname", "refuses the container: invalid hostname.", "C104"),
    ],
)
def test_what_an_engine_refuses_has_a_reason(status: int, message: str, text: str, code: str) -> None:
    found = creation.refusal(EngineRefused(status, message), "app")

    assert text in found[0]
    assert found[1] == code


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ({"image:1": "sha256:1"}, ""),
        (
            {"image:1": "sha256:2"},
            "The image image:1 became another one while the job waited for those before it.",
        ),
        ({}, "The image image:1 was removed in the meantime."),
    ],
)
def test_an_image_that_the_jobs_before_it_changed_is_not_the_one_a_job_was_prepared_for(
    images: dict[str, str], text: str
) -> None:
    engine = MemoryEngine()
    engine.images = images

    reason = creation.other_image(engine.ask, "image:1", "sha256:1")

    assert (reason or ("", "", ""))[0] == text
    assert reason is None or reason[1] == "S101"
