"""The runners ``multinode-process`` and ``multinode-container``: the learners of one job at several hosts.

They hold one process or container runner for each host, and give each some of an attempt's learners. ``runner`` is
loaded by name through the registry; ``launch`` takes the hosts through the stages of a launch together, and finds the
address at which the learners meet; ``calls`` waits for all hosts, or for news of any.
"""
