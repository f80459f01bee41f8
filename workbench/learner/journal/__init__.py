"""The files of a learner's folder: launch document, state, output with its index, records; and reasons for its end.

Every part of the agent and the runners import it. It imports ``platform`` alone.
"""
