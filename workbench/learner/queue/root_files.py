"""The files by which root says how a host is shared. It imports nothing: every guard knows them."""

POLICY_FILE = "/etc/fabric/policy.toml"

DRAIN_FILE = "/etc/fabric/drain"
"""While root's file is there no job gets GPUs, and those that may be preempted end: the host is to be empty soon.

So it is while an order of an operator is (``operators``)."""
