"""What a real job on a pretended GPU uses: from the driver's library to the page of the screens."""

from __future__ import annotations

import socket
from pathlib import Path

from pytest import MonkeyPatch

from tests.screens.support import journey, opened
from tests.stubs import GIB, pretend
from tests.support.command import Fabric
from workbench.clock import now_us
from workbench.learner.platform import leases
from workbench.paths import Home, leases_folder


@journey
async def test_the_usage_page_has_the_limits_that_the_driver_says(
    fabric: Fabric, home: Home, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1").say("slowdown GPU-1 92")
    (fabric.folder / "wait.sh").write_text("while :; do sleep 0.2; done\n")
    fabric("run", "-d", "--name", "hot", "--gpus", "1", "--", "sh", "wait.sh")

    async with opened(home, (200, 60), job="hot", clock=now_us) as shown:
        await shown.until_shown("1 overview")
        await shown.press("4")
        await shown.until_shown("GPU 0 power  95 W of 300 W", "GPU 0 temperature  41", " of 92", "300W", "92")


def test_a_holder_that_does_not_use_its_gpu_is_seen_in_80_columns_too(
    fabric: Fabric, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    gpus = pretend(tmp_path / "gpus", monkeypatch)
    gpus.only(
        [
            f"gpu GPU-{at} {24 * GIB} {used} {use} 41 95000 300000 NVIDIA A100-SXM4-80GB"
            for at, use, used in ((0, 0, 0), (1, 7, 10 * GIB), (2, 0, 0))
        ]
    )
    text = '{"owner": "somebody-with-a-long-name@laptop", "job": "training-abcdefghj"}'
    lease = leases.take(["GPU-0", "GPU-1"], str(leases_folder()), text)
    assert lease is not None

    titles, *lines = fabric("gpus", COLUMNS="80").stdout.splitlines()
    wide = fabric("gpus", COLUMNS="200").stdout
    (inventory,) = fabric.json("gpus", "--json")
    lease.release()

    assert all(len(line) <= 80 for line in lines)
    assert wide.count("root (somebody-with-a-long-name@laptop) abcdefghj") == 2
    use = titles.index("USE") - 1
    assert [line[use : use + 4] for line in lines] == ["idle", "  7%", "  0%"]
    assert [slot["idle"] for slot in inventory["nodes"][0]["slots"]] == [True, False, None]


def test_of_all_backends_those_that_answer_are_listed_and_the_others_named(
    fabric: Fabric, clean_environment: Path, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1")
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        (clean_environment / "config.toml").write_text(
            f'[backends.away]\naddress = "ssh://me@127.0.0.1:{port}"\n'
        )

        found = fabric("gpus", "--all")
        documents = fabric.json("gpus", "--all", "--json")

    assert "GPU-1" in found.stdout
    assert f"away: 127.0.0.1 port {port} refuses the connection" in found.stderr
    assert [one["backend"] for one in documents] == ["local"]


def test_gpus_are_listed_with_their_use_as_the_screens_write_it(
    fabric: Fabric, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1", used=3 << 29)

    (line,) = [line for line in fabric("gpus").stdout.splitlines() if "GPU-1" in line]

    assert "  1.5 GiB of 24.0 GiB   7%  " in line
