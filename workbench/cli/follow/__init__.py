"""Shows jobs that are followed: views of their events, signals and time limits, reports at the end.

May be imported by ``cli.commands``. May import: ``services``, ``terminal``, and ``cli.framework``.
"""
