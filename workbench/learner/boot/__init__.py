"""How the agent starts: its archive is built, unpacked, and run; for a host with only a shell, ``sh_launch`` stands in.

``archive.build`` and ``archive.guard_argv`` serve runners and backends, ``bootstrap.unpack`` the host's operations.
It imports ``journal`` alone; ``bootstrap.py`` imports nothing of fabric, since it is ``__main__.py`` of the archive.
"""
