"""Data stores as this machine reaches them: listing, copying, moving, serving a folder by S3.

``model`` turns a manifest's store into a :class:`~workbench.data.stores.model.JobDataStore`, ``transfer`` and
``local_server`` run rclone, ``fingerprints`` compares contents. It imports ``workbench.spec``, ``workbench.paths``
and ``workbench.learner.stores``.
"""
