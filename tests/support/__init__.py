"""What tests of several folders share: the command, processes, jobs, hosts, engines, clusters, stores, disks.

A folder's own helpers lie in that folder. Fixtures that several folders use are plug-ins, which ``tests/conftest.py``
names: ``command``, ``box``, ``engine``, ``cluster``. No test imports a ``conftest``.
"""
