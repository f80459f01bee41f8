"""How the agent comes to where it runs: its archive is built and unpacked; for a host with only a shell, ``sh_launch``.

``archive.build`` and ``archive.guard_argv`` serve runners and backends, ``unpacked_copy.unpack`` the host's operations
and ``workbench.learner.bootstrap``, which is ``__main__.py`` of the archive. It imports ``journal`` alone.
"""
