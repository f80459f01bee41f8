"""Variables that make libraries write their metrics where they are found: never against what the user has set up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.interface import AttemptRef, LaunchRequest
from runners.shared.environment import tracking_defaults
from workbench.services.submit.submit_environment import own_tracking
from workbench.spec import EvaluationMetrics, Framework, JobSpec

ALL = {
    "TENSORBOARD_LOGGING_DIR": "/logs/tensorboard",
    "WANDB_MODE": "offline",
    "WANDB_DIR": "/logs",
    "MLFLOW_TRACKING_URI": "file:///logs/mlruns",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "TRACKIO_DIR": "/logs/trackio",
}


def defaults(recorded: dict[str, Any] | None = None, **fields: Any) -> dict[str, str]:
    spec = replace(JobSpec(framework=Framework(name="custom", command="true"), name="a"), **fields)
    request = LaunchRequest(AttemptRef("home", "job", 1, 1), spec, "me@box", "", "", recorded=recorded or {})
    return tracking_defaults(request, "/logs")


def test_libraries_write_into_log_dir_and_use_no_network() -> None:
    assert defaults() == ALL
    assert defaults(evaluation_metrics=EvaluationMetrics(type="auto")) == ALL


@pytest.mark.parametrize("kind", ["plain", "tensorboard", "regex_extractor"])
def test_a_manifest_that_says_how_metrics_are_found_gets_none(kind: str) -> None:
    assert defaults(evaluation_metrics=EvaluationMetrics(type=kind)) == {}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("WANDB_API_KEY", {"WANDB_MODE"}),
        ("WANDB_MODE", {"WANDB_MODE"}),
        ("WANDB_DIR", {"WANDB_DIR"}),
        ("MLFLOW_TRACKING_URI", {"MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"}),
        ("TENSORBOARD_LOGGING_DIR", {"TENSORBOARD_LOGGING_DIR"}),
        ("TRACKIO_SPACE_ID", {"TRACKIO_DIR"}),
    ],
)
def test_what_the_user_has_set_up_stays(name: str, missing: set[str]) -> None:
    rest = {other: value for other, value in ALL.items() if other not in missing}

    assert defaults(env={name: "mine"}) == rest
    assert defaults(env={name: ""}) == rest
    assert defaults(secrets=(name,)) == rest
    assert defaults({"tracking": [name]}) == rest


def test_a_key_in_netrc_counts_and_no_value_is_recorded(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.wandb.ai\n  login user\n  password very-secret\n")

    found = own_tracking({"NETRC": str(netrc), "MLFLOW_TRACKING_URI": "http://me:pass@host", "HOME": "/"})

    assert found == ["MLFLOW_TRACKING_URI", "WANDB_API_KEY"]
    assert own_tracking({"NETRC": str(tmp_path / "none")}) == []
