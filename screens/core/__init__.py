"""What all screens stand on: the table of actions, the keys, what is remembered, and the app as a protocol.

Every package above imports from here. It imports workers and style, and no widget.
"""
