"""The runner ``container``: every learner in a container of the job's image, with its agent outside it on the host.

``runner`` is loaded by name through the registry; ``plan`` says what will be sent, ``launch`` sends it,
``engine`` talks to Docker or podman. Others import ``image_transfer`` and ``engine`` to list and copy
images. Imports ``runners.process``, which does the rest, and ``runners.shared``.
"""
