"""Leases GPUs for containers: beside the leases, containers that were created and not started count as holders."""

from __future__ import annotations

from collections.abc import Sequence

from backends.contract.host import Host
from runners.container.engine import Engine
from runners.container.plan import LABEL_SLOTS, ref_of_labels
from runners.interface import LaunchRequest
from runners.shared.gpu_leases import Leased, lease
from runners.shared.host_facts import Site
from workbench.errors import SlotsBusy
from workbench.job import nine


def lease_for_containers(
    request: LaunchRequest, learners: Sequence[int], host: Host, site: Site, engine: Engine
) -> Leased:
    """Lease the slots of these learners, and make sure that no container has any of them.

    Raises:
        SlotsBusy: some are taken; none is held then.
        LaunchRefused: the place does not have so many.
    """
    leased = lease(request, learners, host, site)
    if leased.lock is None:
        return leased
    try:
        taken = _in_containers(engine, request)
        for uuids in leased.by_learner.values():
            for uuid in uuids:
                if uuid in taken:
                    raise SlotsBusy(f"waits for GPU {uuid}: {taken[uuid]} has a container with it")
    except BaseException:
        leased.release()
        raise
    return leased


def _in_containers(engine: Engine, request: LaunchRequest) -> dict[str, str]:
    """Return the GPUs of other attempts' containers, each with whose it is."""
    found = {}
    for container in engine.containers(LABEL_SLOTS):
        told = container.get("Labels") or {}
        ref = ref_of_labels(told)
        own = ref is not None and (ref.job_id, ref.attempt) == (
            request.attempt.job_id,
            request.attempt.attempt,
        )
        if container.get("State") in ("created", "running", "paused") and not own:
            for uuid in filter(None, told[LABEL_SLOTS].split(",")):
                found[uuid] = f"job {nine(ref.job_id)}" if ref else "another"
    return found
