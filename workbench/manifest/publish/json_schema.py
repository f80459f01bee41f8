"""The JSON schema of manifests, for editors: made of the same table that validates."""

from __future__ import annotations

from typing import Any

from workbench.manifest.keys.root import MANIFEST


def schema() -> dict[str, Any]:
    """Return the schema, in the draft that editors' YAML servers know.

    It is a little stricter than validation where an editor should mark something that fabric only warns of
    (unknown keys), and does not check keys against one another.
    """
    body = MANIFEST.schema()
    resources = {
        key: body["properties"][key] for key in ("gpus", "gpu_type", "cpus", "memory", "storage", "shm_size")
    }
    body["properties"]["resources"] = {
        "type": ["object", "null"],
        "properties": resources,
        "additionalProperties": False,
        "description": "The keys for what a learner needs may stand here, too.",
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A job's manifest",
        "description": "FfDL's manifest format with fabric's keys on top.",
        **body,
    }
