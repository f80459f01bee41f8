"""Has what a job's learners could not store stored after all, by the agents that kept them, where the files are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import LaunchRequest
from runners.shared.host_facts import Site
from runners.shared.store_setup import secrets_with
from workbench.errors import RunnerError

DEADLINE_SECONDS: Final = 12 * 3600.0


def store_again(request: LaunchRequest, host: Host, site: Site) -> list[Mapping[str, Any]]:
    """Return how it went for each learner that has something at the place, as ``storing.json`` has it.

    Raises:
        RunnerError: an agent says nothing that can be read.
        PlaceUnreachable: the place does not answer.
        LaunchRefused: a credential has no value any more.
    """
    secrets = json.dumps(secrets_with(request, site)) + "\n"
    attempt = site.home.job(request.attempt.job_id).attempt(request.attempt.attempt)
    found: list[Mapping[str, Any]] = []
    for learner in range(1, request.attempt.learners + 1):
        folder = attempt.learner(learner)
        launch = host.call("read_object", path=str(folder.launch)) or {}
        guard, secrets_file = launch.get("guard") or [], launch.get("secrets_file")
        if not launch.get("stores") or len(guard) < 3 or not secrets_file:
            continue
        host.call("secret_folder")  # it may have gone with the memory that it was in
        host.call("write_files", files={secrets_file: secrets})
        try:
            done = host.run([*guard[:-2], "store", str(folder.path)], deadline_seconds=DEADLINE_SECONDS)
        finally:
            host.call("remove", paths=[secrets_file])
        found.append({**_read(done.stdout), "learner": learner})
    return found


def _read(said: bytes) -> dict[str, Any]:
    try:
        document = json.loads(said)
    except ValueError as error:
        raise RunnerError("The agent does not say whether the results are stored.") from error
    if not isinstance(document, dict):
        raise RunnerError("The agent does not say whether the results are stored.")
    return document
