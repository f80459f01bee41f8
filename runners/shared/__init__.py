"""What several runners need on a host: code, environments, data stores, GPU leases, job files, terminals.

``data_stores``, ``environment``, ``launch_document``, ``learner_status`` and ``unsupported`` are pure; the rest calls
the host. Runners import it, and services that read or download files. Imports ``runners.interface`` and
``backends.contract``; no runner.
"""
