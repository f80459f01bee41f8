"""How learners run on a backend: as processes, in containers, as pods. One package a runner.

Others import ``runners.interface`` (the public contract), ``runners.registry``, ``runners.conformance`` in
tests, and parts of ``runners.shared``. Imports ``backends``, ``workbench`` below the controller, and no
controller, service or screen.
"""
