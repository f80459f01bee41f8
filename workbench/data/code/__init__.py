"""Snapshots of a job's code: a folder, zip or tar becomes a content-addressed ``tar.gz``.

``snapshot`` is the way in, ``bounds`` says how much is taken without asking, ``git`` what the repository knows;
others import these three. The rest finds files (``scan``, ``ignore``), refuses folders (``folder_guard``,
``credentials``) and packs. It imports ``workbench.errors`` and ``workbench.paths``, and
``learner.platform.chains``.
"""
