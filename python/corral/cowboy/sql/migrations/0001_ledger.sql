-- The turn ledger of one agent. One writer; ids of entries are 16 sortable bytes.
CREATE TABLE ledger (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  uuid          TEXT    NOT NULL,
  agent         TEXT    NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE sources (
  id          INTEGER PRIMARY KEY,
  name        TEXT    NOT NULL UNIQUE,
  incarnation INTEGER NOT NULL,               -- 0: never attached to a stream
  sequence    INTEGER NOT NULL,               -- raised by every commit that changes a turn
  watermark   BLOB    NOT NULL CHECK (length(watermark) = 16),
  last_taken  BLOB    NOT NULL CHECK (length(last_taken) = 16)
) STRICT;

CREATE TABLE turns (
  id              INTEGER PRIMARY KEY,
  source_id       INTEGER NOT NULL REFERENCES sources (id),
  turn_id         TEXT    NOT NULL,
  incarnation     INTEGER NOT NULL,
  entry           BLOB    NOT NULL CHECK (length(entry) = 16),
  kind            TEXT    NOT NULL,
  received_at_ms  INTEGER NOT NULL,
  state           TEXT    NOT NULL,
  intent          TEXT,
  generation      INTEGER NOT NULL,
  ack             TEXT    NOT NULL,
  closed          INTEGER NOT NULL,
  ack_attempts    INTEGER NOT NULL,
  attempt         INTEGER NOT NULL,
  starts          INTEGER NOT NULL,
  started_at_ms   INTEGER,
  release         INTEGER NOT NULL,
  parked          INTEGER NOT NULL,
  identity        BLOB,
  cancels         BLOB,
  sender          BLOB,
  channel         BLOB,
  thread          BLOB,
  message_id      BLOB,
  traceparent     BLOB,
  outcome         TEXT,
  slot            TEXT,
  detail          TEXT,
  dead_copy       INTEGER NOT NULL,
  effect          INTEGER NOT NULL,
  effect_attempts INTEGER NOT NULL,
  outbox_id       BLOB,
  dead_id         BLOB,
  terminal_at_ms  INTEGER,
  body            BLOB,
  content         BLOB,
  -- A list after IN would be built anew for every row; a search in a text is not.
  CHECK (instr('|message|cancel|', '|' || kind || '|')),
  CHECK (instr('|unacked|acked|forgotten|', '|' || ack || '|')),
  CHECK (instr('|received|dispatched|interrupted|replying|held|', '|' || state || '|')
         + instr('|done|empty|dead|cancelled|', '|' || state || '|')),
  CHECK (intent IS NULL OR instr('|done|held|dead|cancelled|', '|' || intent || '|')),
  CHECK ((state = 'replying') = (intent IS NOT NULL)),
  CHECK ((terminal_at_ms IS NOT NULL)
         = (instr('|done|empty|dead|cancelled|', '|' || state || '|') > 0)),
  CHECK (terminal_at_ms IS NULL OR (content IS NULL AND body IS NULL)),
  CHECK (closed = (terminal_at_ms IS NOT NULL AND ack = 'acked'))
) STRICT;

CREATE UNIQUE INDEX turns_entry ON turns (source_id, incarnation, entry);
CREATE UNIQUE INDEX turns_identity ON turns (source_id, identity) WHERE identity IS NOT NULL;
CREATE INDEX turns_open ON turns (source_id, incarnation, entry) WHERE closed = 0;
CREATE INDEX turns_parked ON turns (source_id, coalesce(channel, x''), entry) WHERE parked = 1;

-- What happened to entries that have no turn of their own, and other anomalies.
CREATE TABLE notes (
  id        INTEGER PRIMARY KEY,
  source_id INTEGER NOT NULL REFERENCES sources (id),
  at_ms     INTEGER NOT NULL,
  kind      TEXT    NOT NULL,
  entry     BLOB,
  detail    TEXT    NOT NULL
) STRICT;

CREATE TABLE tallies (
  source_id INTEGER NOT NULL REFERENCES sources (id),
  name      TEXT    NOT NULL,
  count     INTEGER NOT NULL,
  PRIMARY KEY (source_id, name)
) STRICT, WITHOUT ROWID;
