"""From nodes to a :class:`~workbench.spec.JobSpec`: flags, variables, templates and defaults are laid over a manifest.

``load`` is the way in. Others import it through :mod:`workbench.manifest`; ``params``, ``overrides`` and ``overlay``
also directly. It imports ``manifest.keys`` and ``manifest.yaml``, never the configuration.
"""
