"""The runner ``container``: every learner in a container of the job's image, with its agent outside it on the host.

``runner`` is loaded by name through the registry; ``plan`` and ``launch`` are its steps,
``engine`` calls Docker or podman. Others import ``image_transfer`` and ``engine`` to list and copy
images. Builds on ``runners.process``; imports ``runners.shared``.
"""
