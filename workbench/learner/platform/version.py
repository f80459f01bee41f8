"""The agent's version: that of the distribution that it was shipped with."""

VERSION = "0.1.0"
