"""What lists of jobs show of a series, in SQL: superseded points do not count. It imports nothing: every list needs it.

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
