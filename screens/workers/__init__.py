"""What runs in other threads than the one that draws: reads, writes, tasks, commands.

Everything above imports from here. It imports no other package of the screens.
"""
