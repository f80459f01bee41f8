"""The public import path of the contract in ``backends.contract.host``."""

from backends.contract.host import *  # noqa: F403 - everything that is public there
