"""Calls to the agent on another machine as frames over a pipe: SSH, an exec, or a local process.

``client`` sends calls and hands out replies, ``host`` is the contract's ``Host`` on top of it,
``heartbeat`` notices dead links. ``ssh`` and the pod runner build on this package. Imports
``backends.contract`` and the agent's frame format.
"""
