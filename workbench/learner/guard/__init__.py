"""Keeps one learner: ``guard`` starts its command once, watches limits and requests, stops it, records its end.

``container_command`` stands for a command that runs in a container. Others import ``guard.Guard`` (the commands of
the agent) and the constants of ``container_command`` (runners). It may import ``scribe``, ``stores``, ``journal`` and
``platform``.
"""
