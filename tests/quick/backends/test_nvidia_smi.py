"""GPUs as nvidia-smi tells them, where NVIDIA's library cannot be loaded; a pretended nvidia-smi stands for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.learner.gpu import nvidia_smi

GPUS = """\
GPU-1, 0, NVIDIA A100-SXM4-40GB, 40960, 1024, 97, 61, 250.50, 400.00, 550.54.15
GPU-2, 1, NVIDIA A100-SXM4-40GB, 40960, 0, [N/A], 30, [Not Supported], 400.00, 550.54.15
"""


def pretend(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + body)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_gpus_and_their_processes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps = "GPU-1, 4711, 512\nGPU-1, 4712, [N/A]\nGPU-9, 1, 1\n"
    body = f"case $1 in --query-gpu=*) printf '{GPUS}';; *) printf '{apps}';; esac\n"
    pretend(tmp_path, monkeypatch, body)

    found = nvidia_smi.read_gpus()

    first, second = found.slots
    assert found.driver == "driver 550.54.15"
    assert first == {
        "uuid": "GPU-1",
        "index": 0,
        "model": "NVIDIA A100-SXM4-40GB",
        "memory_bytes": 40960 << 20,
        "memory_used_bytes": 1024 << 20,
        "utilization_percent": 97.0,
        "temperature_celsius": 61.0,
        "power_watts": 250.5,
        "power_limit_watts": 400.0,
        "processes": [{"pid": 4711, "memory_bytes": 512 << 20}, {"pid": 4712, "memory_bytes": 1024 << 20}],
    }
    assert "utilization_percent" not in second
    assert second["processes"] == []


def test_what_nvidia_smi_complains_of_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed: no driver'; exit 9\n")

    found = nvidia_smi.read_gpus()

    assert (found.slots, found.driver) == ([], "none: nvidia-smi says: NVIDIA-SMI has failed: no driver")


def test_without_it_there_are_simply_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert nvidia_smi.read_gpus().driver == "none"
