"""Data stores of a learner: data and checkpoints are downloaded before the command, results uploaded from then on.

``download.DataDownload``, ``upload_process.UploadWorker`` and ``upload_process.upload_all`` are the entries, and
``retention`` for checkpoints that no store takes; ``config`` holds the values, ``rclone`` runs the program that moves
the data. It may import ``journal`` and ``platform``.
"""
