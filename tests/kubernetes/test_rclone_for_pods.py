"""Which rclone moves a pod's data: its image's own if it is new enough, else this machine's, sent packed."""

from __future__ import annotations

import gzip
import hashlib
import platform
from pathlib import Path

import pytest

from runners.pod.upload import packed_rclone
from workbench.data.stores.rclone import find_rclone
from workbench.errors import LaunchRefused
from workbench.learner.pod.stores import image_rclone
from workbench.paths import Home


def test_this_machines_is_packed_once_and_whole(home: Home) -> None:
    packed = packed_rclone(platform.machine())
    made = packed.stat()

    with gzip.open(packed) as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    assert found == hashlib.sha256(Path(find_rclone().path).read_bytes()).hexdigest()
    assert packed_rclone(platform.machine()).stat().st_mtime_ns == made.st_mtime_ns
    assert packed.parent == home.agents


def test_one_for_another_kind_of_machine_is_refused_in_a_sentence(home: Home) -> None:
    with pytest.raises(LaunchRefused, match="not for Linux other64"):
        packed_rclone("other64")


def test_an_images_own_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(find_rclone().path).parent))
    assert image_rclone() == find_rclone().path

    old = tmp_path / "rclone"
    old.write_text("#!/bin/sh\necho rclone v1.53.3\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert image_rclone() == ""
    monkeypatch.setenv("PATH", "/nowhere")
    assert image_rclone() == ""
