"""The backend ``kubernetes``: one namespace of a cluster, over its API and without its Python package.

``backend`` is loaded by name through the registry; ``kubeconfig`` finds the cluster, ``auth`` and ``api``
talk to it, ``cluster`` is the contract's implementation, ``probe`` and ``inventory`` describe it. Others
import ``backend``, ``rbac`` and ``probe``. Imports ``backends.contract``.
"""
