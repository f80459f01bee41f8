"""Charts of metrics in the terminal: queries, curves, axes, layout, and the grid that draws them.

The screens of jobs import the grid and the queries. It imports base and what lies below.
"""
