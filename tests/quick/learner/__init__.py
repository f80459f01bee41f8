"""Tests of functions of the agent, without an agent."""
