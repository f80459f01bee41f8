"""Logs: the bytes that learners printed, read by offset, line and time. They are files, never rows.

``journal`` reads one learner's output, ``follow`` several learners', ``copying`` moves bytes fast, ``grep``
selects lines, ``times`` understands ``--since``, ``sanitise`` makes output harmless; ``lines``, ``finding``
and ``levels`` serve a viewer.
"""
