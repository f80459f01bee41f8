"""The Core API as one module: ``core_v2.init()``, then ``core_v2.train``, ``core_v2.checkpoint`` and the others.

Determined makes an experiment of a process that it has not started. Here the job is one already. Where a file describes
it, that counts, as for Determined's own managed experiments; else what :class:`UnmanagedConfig` says.
"""

from __future__ import annotations

import atexit
import contextlib

# Relative: this package is imported by its last name.
from .. import _unmanaged, core  # noqa: TID252
from .._info import get_cluster_info  # noqa: TID252
from ..core import DownloadMode, EarlyExitReason, PreemptMode, TensorboardMode  # noqa: TID252
from ..core._distributed import DistributedContext  # noqa: TID252

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, Sequence

__all__ = [
    "Config",
    "DefaultConfig",
    "DistributedContext",
    "DownloadMode",
    "EarlyExitReason",
    "PreemptMode",
    "TensorboardMode",
    "UnmanagedConfig",
    "close",
    "init",
    "init_context",
    "url_reverse_webui_exp_view",
]

_PARTS = ("train", "checkpoint", "preempt", "searcher", "distributed", "profiler", "info", "alert")
_context: core.CoreContext | None = None


class UnmanagedConfig:
    """What the code says of its experiment, where no file describes that."""

    def __init__(
        self,
        *,
        name: str | None = None,
        hparams: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        description: str | None = None,
        labels: Sequence[str] | None = None,
        workspace: str | None = None,
        project: str | None = None,
        checkpoint_storage: Any = None,
        searcher: Any = None,
        external_experiment_id: str | None = None,
        external_trial_id: str | None = None,
    ) -> None:
        self.name = name
        self.hparams = hparams
        self.data = data
        self.description = description
        self.labels = labels
        self.workspace = workspace
        self.project = project
        self.checkpoint_storage = checkpoint_storage
        self.searcher = searcher
        self.external_experiment_id = external_experiment_id
        self.external_trial_id = external_trial_id


Config = UnmanagedConfig
"""As training code names it."""
DefaultConfig = UnmanagedConfig
"""An older name, as the class's own is."""


def init(
    *,
    config: UnmanagedConfig | None = None,
    defaults: UnmanagedConfig | None = None,
    unmanaged: UnmanagedConfig | None = None,
    client: Any = None,
    distributed: DistributedContext | None = None,
    checkpoint_storage: Any = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> None:
    """Begin: from here on the parts of the Core API are attributes of this module.

    ``defaults`` and ``unmanaged`` are older names of ``config``: together they are one, the former's values first.

    Raises:
        RuntimeError: it was called before, or the process belongs to no job.
        NotImplementedError: the checkpoint storage is neither a folder nor a bucket of S3.
        TypeError: the hyperparameters are no mapping.
        ValueError: the job has several slots, and it is not said which process this is.
    """
    global _context
    if _context is not None:
        raise RuntimeError("core_v2.init() was called twice; core_v2.close() comes between")
    if get_cluster_info() is None:
        raise RuntimeError("core_v2 needs a job: fabric run -- python3 SCRIPT starts one")
    config = _one_config(config, defaults, unmanaged) if _unmanaged.is_unmanaged() else None
    if config is not None:
        _unmanaged.take_config(config)
        checkpoint_storage = checkpoint_storage or config.checkpoint_storage
    _context = core.init(
        distributed=distributed,
        checkpoint_storage=checkpoint_storage,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
    )
    atexit.register(close)
    info = _context.info
    if config is not None and info is not None and _context.distributed.rank == 0:
        _unmanaged.note_config(config, info.trial.hparams)


def _one_config(*given: UnmanagedConfig | None) -> UnmanagedConfig | None:
    """Return what several say of an experiment, the first ones before the others; None where none says anything."""
    several = [each for each in given if each is not None]
    if not several:
        return None
    found = UnmanagedConfig()
    for each in reversed(several):
        vars(found).update({name: value for name, value in vars(each).items() if value is not None})
    return found


def close() -> None:
    """End what :func:`init` began; more than once does no harm."""
    global _context
    context, _context = _context, None
    if context is not None:
        context.distributed.close()


@contextlib.contextmanager
def init_context(**options: Any) -> Iterator[core.CoreContext]:
    """Yield the parts of the Core API as one value; the options are those of :func:`init`."""
    init(**options)
    context = _context
    assert context is not None
    try:
        with context:
            yield context
    finally:
        close()


def url_reverse_webui_exp_view() -> str:
    """Return the command that shows the job, where Determined has the address of a page.

    Raises:
        RuntimeError: :func:`init` was not called.
    """
    info = _begun("url_reverse_webui_exp_view()").info
    assert info is not None
    return "fabric show %s" % info.task_id


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return getattr(_begun(name), name)
    raise AttributeError("determined.experimental.core_v2 has no %s" % name)


def _begun(name: str) -> core.CoreContext:
    if _context is None:
        raise RuntimeError("core_v2.%s is there once core_v2.init() was called" % name)
    return _context
