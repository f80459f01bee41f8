"""fabric's core. Kept empty of imports: the agent ships this file to places that have only Python 3.8."""
