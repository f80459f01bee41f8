"""Reading the store: jobs, learners, requests, filters, pages of the list, SQL of a person. Nothing here changes a job.

Everybody may import it. Imports ``db`` and ``history``.
"""
