"""Use cases that look at jobs and change nothing: find, describe, compare, read metrics and logs.

They take values and return frozen values; clients turn them into text. They never print.
May be imported by ``cli``, ``api``, ``screens`` and other services: all modules here.
May import: ``services.filters``, and what lies below the services.
"""
