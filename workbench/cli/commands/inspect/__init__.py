"""Commands that look at jobs: list, show, logs, metrics, compare, diff, grep, events, sql, status. One module each."""
