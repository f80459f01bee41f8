"""Use cases that move files: download a job's, manage checkpoints and copies of data, upload again, serve a store.

Progress goes to a callback, as a value of ``events``; nothing is printed.
May be imported by ``cli``, ``api``, ``screens`` and ``services.upkeep``: all modules here.
May import: ``services.submit``, ``services.backends``, and what lies below the services.
"""
