"""What lists of jobs show of a series, in SQL: superseded points do not count. It imports nothing: every list needs it.

The column ``loss`` of ``fabric list`` and of the screens has one rule, :data:`IS_LOSS` and :data:`LOSS_ORDER`. The
curve beside it, and the first chart of a job, are of its main metric, which a job without a loss has, too
(``workbench/metric_names.py``: ``main_metrics``).

The connection must know ``live_value``, see ``metric_values``.
"""

from __future__ import annotations

from typing import Final

HAS_ATTEMPTS: Final = "(SELECT attempt FROM main.jobs WHERE jobs.id = series.job_id) > 1"
"""The condition that a row of ``series`` is of a job with several attempts."""

LISTED: Final = f"(NOT {HAS_ATTEMPTS} OR live_value(id, 'last_time_us') IS NOT NULL)"
"""The condition that a row of ``series`` has a point that counts."""

LISTED_LAST: Final = f"CASE WHEN {HAS_ATTEMPTS} THEN live_value(id, 'last') ELSE last END"
"""The last value of a row of ``series``, for lists of jobs."""

_IS_GONE: Final = f"{HAS_ATTEMPTS} AND live_value(id, 'last_time_us') IS NOT last_time_us"

LISTED_STEP: Final = f"CASE WHEN {_IS_GONE} THEN NULL ELSE last_step END"
"""The last step of a row of ``series`` as it was reported; NULL where its last point is superseded."""

IS_LOSS: Final = f"kind = 'value' AND lower(series.name) LIKE '%loss' AND {LISTED}"
"""The condition that a row of ``series`` is a loss that has a point which counts."""

LOSS_ORDER: Final = "lower(series.name) = 'loss' DESC, lower(series.name) LIKE 'train%' DESC, learner"
"""The order in which losses of a job stand for it: the one that is called ``loss``, then that of the training, and of
several learners the first one's."""
