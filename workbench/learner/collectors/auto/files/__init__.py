"""Metrics in files that libraries write into a job's folders: event files, tables, wandb's, MLflow's and trackio's."""

from workbench.learner.collectors.auto.files.found import FoundFiles

__all__ = ["FoundFiles"]
