"""Use cases that keep a home in order: diagnose, measure, plan and do removals, find leftovers, rebuild the database.

May be imported by ``cli``, ``api`` and ``screens``: all modules here.
May import: every other service, and what lies below the services.
"""
