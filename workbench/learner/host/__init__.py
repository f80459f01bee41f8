"""What the agent does on a host for the other side of a connection, and the server that takes its calls.

``operations.HostOperations`` is the table of calls by name, ``server.serve`` answers them over frames; the other
modules are what they do. Backends and ``pod`` import them. It may import ``stores``, ``boot``, ``journal``, ``gpu``
and ``platform``.
"""
