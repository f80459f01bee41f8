from __future__ import annotations

import pytest

from workbench.metrics.short_names import shared_folder


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        (["logs/run1/train/loss", "logs/run1/val/loss"], "logs/run1/"),
        (["logs/run1/train/loss", "logs/run1/train/accuracy"], "logs/run1/"),
        (["logs/run1/train/loss", "logs/run1/val/loss", "lr", "epoch"], "logs/run1/"),
        (["train/loss", "train/accuracy"], ""),
        (["loss", "accuracy"], ""),
        (["logs/run1/loss"], ""),
        (["logs/run1/loss", "logs/run2/loss"], "logs/"),
        (["logs/loss", "logs/lr", "loss"], ""),
        (["a/b", "a/b/c"], "a/"),
        (["model/head/norm", "model/body/norm", "loss/total"], ""),
        ([], ""),
    ],
    ids=[
        "folders",
        "train stays",
        "without a folder",
        "train alone",
        "plain",
        "one",
        "runs",
        "clash",
        "whole",
        "other",
        "none",
    ],
)
def test_names_are_shown_without_the_folders_that_they_share(names: list[str], folder: str) -> None:
    assert shared_folder(names) == folder
    assert shared_folder(reversed(names)) == folder
