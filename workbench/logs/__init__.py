"""Logs: the bytes that learners printed, read by offset, line and time. They are files, never rows.

``journal`` reads one learner's output, ``follow`` several learners', ``file_copy`` writes it to a descriptor,
``grep`` and ``parallel_search`` find lines, ``sanitise`` and ``display`` make output harmless; ``line_index``,
``line_filter`` and ``levels`` serve a viewer. It imports the store's errors, ``workbench.paths`` and
``workbench.errors``.
"""
