"""What runs in the containers of a learner's pod: init container, entry point, side-car, and their configuration.

``main`` chooses the role. Runners import the constants of ``config``, and ``log_dump`` to read what a pod printed.
It may import every other package of the agent but ``guard``.
"""
