"""What a shell completes a word to. A failure completes to nothing: nobody reads a message there."""

from __future__ import annotations

LIMIT = 50


def job_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete ids and names of the newest jobs."""
    try:
        from workbench.cli.open_store import existing_store
        from workbench.job import nine
        from workbench.store.jobs import list_jobs

        with existing_store() as store:
            rows = list_jobs(store, limit=LIMIT) if store else []
    except Exception:  # anything at all: a shell is waiting
        return []
    words = [(nine(row.id), f"{row.state} {row.name}") for row in rows]
    words += [(row.name, f"{row.state} {nine(row.id)}") for row in rows]
    return [word for word in (*words, ("@last", "the job submitted last")) if word[0].startswith(incomplete)]


def backend_names(incomplete: str) -> list[str]:
    """Complete the places that the configuration names."""
    try:
        from workbench.config import load_config

        names = ["local", *load_config().backends]
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
