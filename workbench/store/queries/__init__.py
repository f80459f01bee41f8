"""Reading the store: jobs, learners, requests, filters, pages of the list, SQL of a person. Nothing here changes a job.

Everybody may import it; jobs are most easily read through ``workbench.store.jobs``. Imports ``db`` and
``history``.
"""
