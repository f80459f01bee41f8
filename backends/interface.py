"""The public import path of the contract in ``backends.contract.host``."""

from backends.contract.host import *  # noqa: F403 - one name, one place: what is public there
