"""What training code may import of Determined and is not here, with what to do instead."""

from __future__ import annotations

_NO_WHEEL = (
    "Determined's own wheel has it: name determined==0.38.1 in requirements:, or an image that has it; or "
)
NO_MASTER = (
    "there is no master to talk to: use the command fabric, or import fabric_workbench where fabric is"
)

_INSTEAD = {
    "pytorch": _NO_WHEEL + "write the loop with det.core",
    "keras": _NO_WHEEL + "call det.core from a callback",
    "tensorflow": "write the loop with det.core",
    "estimator": "write the loop with det.core",
    "transformers": _NO_WHEEL + "report from a TrainerCallback by det.core",
    "lightning": _NO_WHEEL + "report from a callback by det.core",
    "common": NO_MASTER,
    "searcher": "Determined removed custom searchers in 0.38: write search: {method: python, searcher: FILE:CLASS} in a"
    " manifest",
    "tensorboard": _NO_WHEEL + "write event files to core.train.get_tensorboard_path()",
    "horovod": _NO_WHEEL + "import horovod.torch, and call det.core.DistributedContext.from_horovod()",
    "profiler": "usage of CPU, memory and GPU is always recorded; core.profiler is there",
    "errors": _NO_WHEEL + "catch what det.core raises: ValueError, RuntimeError and others of Python's own",
    "cli": "use the command fabric",
    "deploy": "use fabric backend add",
}
_INTERNAL = _NO_WHEEL + "do without: it is of no public API"


def instead_of(name: str) -> str:
    """Return what to do instead of a part that is known not to be here, by its name below ``determined``.

    Of others nothing is known, and the text is empty.
    """
    package, _, part = name.partition(".")
    if package == "experimental" and part and not part.startswith("_"):
        return NO_MASTER
    return _INSTEAD.get(name, "")


def instead_of_internal(name: str) -> str:
    """Return what to do instead of a part that only Determined's own wheel has."""
    return instead_of(name) or _INTERNAL
