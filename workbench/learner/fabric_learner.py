"""``workbench.learner`` for training code, by a name that no other package has; at the top of the archive."""

from workbench.learner.report import checkpoint, hparams, progress, report, should_stop

__all__ = ["checkpoint", "hparams", "progress", "report", "should_stop"]
