"""What is done to a host, the way there and ourselves in the middle of a job, each undone again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.ssh.relay import Relay
from tests.support.box import Box
from tests.support.controllers import answers, kill
from tests.support.real_jobs import Ground
from tests.support.sshd import cut_power, processes_of
from workbench.controller.client.connect import ensure_controller

LASTING_SECONDS: Final = (60.0, 180.0)
LASTING_SHARE: Final = 0.2


def pause(draw: random.Random, least: float, most: float) -> None:
    """Let things be as they are for a while."""
    time.sleep(draw.uniform(least, most))


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a harm is done."""

    box: Box
    ground: Ground
    relay: Relay
    draw: random.Random
    lasting: bool = False
    """Whether a link may be cut for minutes, now and then."""

    def pause(self, least: float = 0.2, most: float = 2.0) -> None:
        """Let things be as they are for a while: what is drawn here is the harm's length."""
        pause(self.draw, least, most)


Harm = Callable[[Scene], None]


def pause_long(scene: Scene) -> None:
    """Let a host be away for seconds, or for minutes."""
    if scene.lasting and scene.draw.random() < LASTING_SHARE:
        scene.pause(*LASTING_SECONDS)
    else:
        scene.pause()


def kill_session(scene: Scene) -> None:
    """What serves our connection crashes."""
    scene.box.daemon.kill_sessions()


def stop_sshd(scene: Scene) -> None:
    """Sshd is gone for a while, with all its sessions."""
    scene.box.daemon.stop()
    pause_long(scene)
    scene.box.daemon.start()


def kill_host_process(scene: Scene) -> None:
    """The process there that does what we ask crashes."""
    for pid in _agents(scene.box, b"host"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_guard(scene: Scene) -> None:
    """All that keeps the learner crashes at once."""
    pids = _agents(scene.box, b"guard")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def kill_scribe(scene: Scene) -> None:
    """Who writes the journal crashes, and who keeps the learner does not."""
    for file in scene.box.user.home.glob(".fabric/*/*/jobs/*/attempt-*/learner-*/state.json"):
        try:
            pid = int(json.loads(file.read_text()).get("scribe_pid") or 0)
            if pid and b"/agents/" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            continue


def kill_controller(scene: Scene) -> None:
    """Our own controller crashes, and another begins."""
    kill(answers(scene.ground.home).pid)
    ensure_controller(scene.ground.home)


def cut_link(scene: Scene) -> None:
    """The connection is reset, and none can be made for a while."""
    scene.relay.cut()
    pause_long(scene)
    scene.relay.join()


def half_open(scene: Scene) -> None:
    """The other side takes everything and says nothing, longer than we are patient."""
    scene.relay.freeze()
    scene.pause(2.0, 5.0)
    scene.relay.go_on()


def drop_packets(scene: Scene) -> None:
    """Packets vanish on the way, and nobody is told."""
    rule = ["INPUT", "-i", "lo", "-p", "tcp", "--dport", str(scene.relay.port), "-j", "DROP"]
    subprocess.run(["iptables", "-w", "-I", *rule], check=True)
    try:
        scene.pause(1.0, 5.0)
    finally:
        subprocess.run(["iptables", "-w", "-D", *rule], check=True)


def fill_disk(scene: Scene) -> None:
    """The host's disk takes nothing for a while (it is a small one)."""
    filler = scene.box.user.home / ".fabric" / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(65536))
        except OSError:
            pass
    scene.pause(0.5, 2.5)
    filler.unlink()


def reboot(scene: Scene) -> None:
    """The host is restarted: nothing runs any more, and it says another boot id than it did to the learners."""
    scene.box.daemon.stop()
    cut_power(scene.box.user)
    for file in scene.box.user.home.glob(".fabric/*/*/jobs/*/attempt-*/learner-*/state.json"):
        state = json.loads(file.read_text())
        if state.get("phase") != "exited":
            file.write_text(json.dumps({**state, "boot_id": "0-before"}))
    scene.box.daemon.start()


def nothing(scene: Scene) -> None:
    """Nothing: the scene itself is the harm (a clock that is wrong)."""


HARMS: dict[str, Harm] = {
    "session": kill_session,
    "sshd": stop_sshd,
    "host process": kill_host_process,
    "guard": kill_guard,
    "scribe": kill_scribe,
    "controller": kill_controller,
    "link": cut_link,
    "half-open": half_open,
    "drop": drop_packets,
    "disk": fill_disk,
    "reboot": reboot,
    "clock": nothing,
    "one session": kill_session,
}
"""By name; ``disk``, ``clock`` and ``one session`` have a host of their own kind."""

ANOTHER_ATTEMPT = frozenset({"guard", "reboot"})
"""Harms after which the learner is lost, and begins anew by the job's policy."""


def _agents(box: Box, word: bytes) -> list[int]:
    """List the agents at the host of one kind: ``host`` speaks with us, ``guard`` is all that keeps a learner."""
    found = []
    for pid in processes_of(box.user):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if not any(b"/agents/" in one for one in words):
            continue
        if (b"host" in words) == (word == b"host"):
            found.append(pid)
    return found
