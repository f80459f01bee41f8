"""The first released schema, as SQL.

Never edited once released: what comes later is a step in ``migrations.py``.
"""

from __future__ import annotations

import sqlite3
from typing import Final

LATEST: Final = 1
"""``PRAGMA user_version`` of a database of this version of fabric."""

FIRST_NAME: Final = "m001_first"
"""The name under which the first schema is recorded as applied."""

FIRST: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Revisions (a screen reads a table again when its counter moved) and ids that are never given twice.
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES
  ('jobs', 0), ('transitions', 0), ('learners', 0), ('requests', 0), ('series', 0), ('checkpoints', 0),
  ('progress', 0), ('notes', 0), ('slots', 0), ('ui_state', 0), ('next_job', 1), ('next_request', 1);

CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  reason_code TEXT NOT NULL DEFAULT '',
  reason_hint TEXT NOT NULL DEFAULT '',
  intent TEXT NOT NULL DEFAULT '',
  exit_code INTEGER,
  exit_by TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 1,
  place TEXT NOT NULL,
  backend TEXT NOT NULL,
  owner TEXT NOT NULL,
  submitted_us INTEGER NOT NULL,
  started_us INTEGER,
  ended_us INTEGER,
  changed_us INTEGER NOT NULL,
  seen_us INTEGER,
  restarts INTEGER NOT NULL DEFAULT 0,
  platform_restarts INTEGER NOT NULL DEFAULT 0,
  next_try_us INTEGER,
  learners INTEGER NOT NULL,
  gpus INTEGER NOT NULL,
  cpus REAL,
  memory_bytes INTEGER,
  labels TEXT NOT NULL DEFAULT '{}',
  tags TEXT NOT NULL DEFAULT '[]',
  note TEXT NOT NULL DEFAULT '',
  parent TEXT,
  trial INTEGER,
  deleted_us INTEGER,
  revision INTEGER NOT NULL DEFAULT 0,
  events_size INTEGER NOT NULL DEFAULT 0  -- how much of events.jsonl these rows hold
);
CREATE INDEX jobs_name ON jobs (name) WHERE deleted_us IS NULL;
CREATE INDEX jobs_parent ON jobs (parent, trial) WHERE parent IS NOT NULL;
CREATE INDEX jobs_open ON jobs (seq) WHERE deleted_us IS NULL
  AND (state NOT IN ('COMPLETED', 'FAILED', 'HALTED') OR intent <> '' OR next_try_us IS NOT NULL);
CREATE INDEX jobs_revision ON jobs (revision);

CREATE TABLE attempts (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  reason_code TEXT NOT NULL DEFAULT '',
  reason_hint TEXT NOT NULL DEFAULT '',
  exit_code INTEGER,
  exit_by TEXT NOT NULL DEFAULT '',
  queued_us INTEGER NOT NULL,
  pending_us INTEGER,
  downloading_us INTEGER,
  processing_us INTEGER,
  storing_us INTEGER,
  ended_us INTEGER,
  node TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, attempt)
) WITHOUT ROWID;

CREATE TABLE learners (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  learner INTEGER NOT NULL,
  phase TEXT NOT NULL,
  exit_code INTEGER,
  signal INTEGER,
  reason TEXT,  -- NULL: no reason
  reason_code TEXT NOT NULL DEFAULT '',
  reason_hint TEXT NOT NULL DEFAULT '',
  started_us INTEGER,
  ended_us INTEGER,
  decided INTEGER NOT NULL DEFAULT 0,
  stopped TEXT NOT NULL DEFAULT '',
  node TEXT NOT NULL DEFAULT '',
  slots TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (job_id, attempt, learner)
) WITHOUT ROWID;

-- How far each learner's records.jsonl is in the store: moved in the transaction that writes its points.
CREATE TABLE journals (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  learner INTEGER NOT NULL,
  records_offset INTEGER NOT NULL,
  records_seq INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt, learner)
) WITHOUT ROWID;

CREATE TABLE transitions (
  job_id TEXT NOT NULL,
  id INTEGER NOT NULL,  -- from 1 in each job
  attempt INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT '',
  text TEXT NOT NULL DEFAULT '',
  code TEXT NOT NULL DEFAULT '',
  who TEXT NOT NULL DEFAULT '',
  origin TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, id)
) WITHOUT ROWID;

CREATE TABLE requests (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  job_id TEXT NOT NULL,
  payload TEXT NOT NULL,
  who TEXT NOT NULL,
  origin TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  outcome TEXT NOT NULL DEFAULT ''
);
CREATE INDEX requests_job ON requests (job_id);
CREATE INDEX requests_open ON requests (id) WHERE outcome = '';

CREATE TABLE series (
  id INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL,
  learner INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  points INTEGER NOT NULL DEFAULT 0,
  last_step INTEGER,
  last_time_us INTEGER,
  last REAL,
  minimum REAL,
  maximum REAL,
  revision INTEGER NOT NULL DEFAULT 0,
  UNIQUE (job_id, learner, kind, name)
);
CREATE TABLE points (
  series INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step INTEGER,
  time INTEGER NOT NULL,
  value REAL,
  PRIMARY KEY (series, seq)
) WITHOUT ROWID;
CREATE TABLE rollups (
  series INTEGER NOT NULL,
  level INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  n INTEGER NOT NULL,
  nans INTEGER NOT NULL,
  steps INTEGER NOT NULL,  -- how many of the points have a step
  min REAL,
  max REAL,
  first REAL,
  last REAL,
  first_step INTEGER,
  last_step INTEGER,
  min_step INTEGER,
  max_step INTEGER,
  first_time INTEGER NOT NULL,
  last_time INTEGER NOT NULL,
  min_time INTEGER NOT NULL,
  max_time INTEGER NOT NULL,
  PRIMARY KEY (series, level, bucket)
) WITHOUT ROWID;
CREATE TABLE texts (
  series INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step INTEGER,
  time INTEGER NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (series, seq)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  learner INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  path TEXT NOT NULL,
  step INTEGER,
  metrics TEXT NOT NULL DEFAULT '{}',
  metadata TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (job_id, attempt, learner, seq)
) WITHOUT ROWID;
CREATE TABLE progress (
  job_id TEXT NOT NULL,
  learner INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  fraction REAL,
  text TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, learner)
) WITHOUT ROWID;
CREATE TABLE notes (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  learner INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  level TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job_id, attempt, learner, seq)
) WITHOUT ROWID;

-- What places said last of their slots, so that screens need not ask them.
CREATE TABLE slots (
  backend TEXT NOT NULL,
  node TEXT NOT NULL,
  uuid TEXT NOT NULL,
  position INTEGER NOT NULL,
  job_id TEXT NOT NULL DEFAULT '',
  document TEXT NOT NULL,
  seen_us INTEGER NOT NULL,
  PRIMARY KEY (backend, node, uuid)
) WITHOUT ROWID;
CREATE TABLE ui_state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TRIGGER jobs_inserted AFTER INSERT ON jobs BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'jobs';
  UPDATE jobs SET revision = (SELECT value FROM counters WHERE name = 'jobs') WHERE seq = NEW.seq;
END;
CREATE TRIGGER jobs_updated AFTER UPDATE OF
  name, state, reason, reason_code, reason_hint, intent, exit_code, exit_by, attempt, started_us, ended_us,
  changed_us, seen_us, restarts, platform_restarts, next_try_us, labels, tags, note, parent, trial, deleted_us
ON jobs BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'jobs';
  UPDATE jobs SET revision = (SELECT value FROM counters WHERE name = 'jobs') WHERE seq = NEW.seq;
END;
CREATE TRIGGER jobs_removed AFTER DELETE ON jobs BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'jobs'; END;
CREATE TRIGGER transitions_inserted AFTER INSERT ON transitions BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'transitions'; END;
CREATE TRIGGER learners_inserted AFTER INSERT ON learners BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'learners'; END;
CREATE TRIGGER learners_updated AFTER UPDATE ON learners BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'learners'; END;
CREATE TRIGGER requests_inserted AFTER INSERT ON requests BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'requests'; END;
CREATE TRIGGER requests_updated AFTER UPDATE ON requests BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'requests'; END;
CREATE TRIGGER checkpoints_inserted AFTER INSERT ON checkpoints BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'checkpoints'; END;
CREATE TRIGGER progress_inserted AFTER INSERT ON progress BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'progress'; END;
CREATE TRIGGER notes_inserted AFTER INSERT ON notes BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'notes'; END;
CREATE TRIGGER slots_inserted AFTER INSERT ON slots BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'slots'; END;
CREATE TRIGGER slots_removed AFTER DELETE ON slots BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'slots'; END;
CREATE TRIGGER ui_state_inserted AFTER INSERT ON ui_state BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'ui_state'; END;
CREATE TRIGGER ui_state_updated AFTER UPDATE ON ui_state BEGIN
  UPDATE counters SET value = value + 1 WHERE name = 'ui_state'; END;
"""


REPORTS: Final = """
CREATE TABLE IF NOT EXISTS report_runs (
  job_id TEXT NOT NULL,
  series INTEGER NOT NULL,
  first INTEGER NOT NULL,   -- the number of a point
  count INTEGER NOT NULL,   -- so many points from it on come from as many reports, one after the other
  report INTEGER NOT NULL,  -- the number of its report in the learner's attempt
  PRIMARY KEY (job_id, series, first)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS report_counts (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  learner INTEGER NOT NULL,
  reports INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt, learner)
) WITHOUT ROWID;
"""
"""Which points were reported together. It belongs to no version of the schema: whoever first has something to write
makes these tables. An older version works on without them; of the points that it writes, the report is not known."""


OF_EXTERNAL_TRIALS: Final = (
    "text >= 'experiment external trial id:' AND text < 'experiment external trial id;'"
)
"""Which notes have the id that the code of a job without a file gives to its trial."""

NOTES_OF_TRIALS: Final = (
    f"CREATE INDEX IF NOT EXISTS notes_of_trials ON notes (text) WHERE {OF_EXTERNAL_TRIALS}"
)
"""By which the jobs of one such trial are found. As :data:`REPORTS`, it belongs to no version of the schema: who writes
such a note makes it, and without it all notes are read."""


EXPERIMENTS: Final = """
CREATE TABLE IF NOT EXISTS experiments (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  method TEXT NOT NULL,
  metric TEXT NOT NULL,
  goal TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  ended_us INTEGER,
  events_size INTEGER NOT NULL DEFAULT 0  -- how much of events.jsonl these rows hold
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trials (
  experiment TEXT NOT NULL,
  number INTEGER NOT NULL,  -- from 1, in the order of their creation
  trial TEXT NOT NULL,
  job_id TEXT NOT NULL,
  hparams TEXT NOT NULL,
  seed INTEGER NOT NULL,
  state TEXT NOT NULL,
  units REAL,
  last REAL,
  best REAL,
  PRIMARY KEY (experiment, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS trials_by_trial ON trials (experiment, trial, state);  -- each event changes one
CREATE TABLE IF NOT EXISTS archived_experiments (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS annotated_experiments (
  id TEXT PRIMARY KEY,
  note TEXT NOT NULL DEFAULT '',
  tags TEXT NOT NULL DEFAULT '[]'
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reordered_experiments (  -- whose trials come in other turns than was submitted
  id TEXT PRIMARY KEY,
  priority INTEGER,
  weight REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deleted_experiments (  -- whose deletion is under way
  id TEXT PRIMARY KEY,
  who TEXT NOT NULL
) WITHOUT ROWID;
"""
"""Searches and their trials. As :data:`REPORTS`, they belong to no version of the schema."""

REPORTS_NAMES: Final = ("report_runs", "report_counts")
EXPERIMENTS_NAMES: Final = (
    "experiments",
    "trials",
    "trials_by_trial",
    "archived_experiments",
    "annotated_experiments",
    "reordered_experiments",
    "deleted_experiments",
)
"""What these two make."""


def statements(script: str) -> list[str]:
    """Split a script into statements: one by one they stay in a transaction, which ``executescript`` ends."""
    found: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text.strip())
            text = ""
    return found
