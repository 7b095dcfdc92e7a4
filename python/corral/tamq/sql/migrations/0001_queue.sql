-- The queue of one Unix user. One writer. Times are milliseconds since 1970.
CREATE TABLE instance (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  uuid          TEXT    NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;

-- A live session, or one that was: its row stays while a message may refer to it.
CREATE TABLE endpoints (
  id               INTEGER PRIMARY KEY,
  endpoint_id      TEXT    NOT NULL UNIQUE,
  terminal         TEXT    NOT NULL,          -- where it is: canonical JSON
  repos            TEXT    NOT NULL,          -- a JSON list, sorted
  profile          TEXT    NOT NULL,
  label            TEXT    NOT NULL,
  max_attempts     INTEGER NOT NULL CHECK (max_attempts BETWEEN 1 AND 9),
  ack_mode         TEXT    NOT NULL CHECK (ack_mode IN ('injected', 'acknowledged')),
  registered_at_ms INTEGER NOT NULL,
  heartbeat_at_ms  INTEGER NOT NULL,
  gone_at_ms       INTEGER,
  gone_reason      TEXT,
  CHECK ((gone_at_ms IS NULL) = (gone_reason IS NULL))
) STRICT;

CREATE UNIQUE INDEX endpoints_live_terminal ON endpoints (terminal) WHERE gone_at_ms IS NULL;

-- Which live endpoints serve a repository.
CREATE TABLE serving (
  repo     TEXT    NOT NULL,
  endpoint INTEGER NOT NULL REFERENCES endpoints (id),
  PRIMARY KEY (repo, endpoint)
) STRICT, WITHOUT ROWID;

CREATE INDEX serving_endpoint ON serving (endpoint);

-- Rows stay for ever: the same key always gives the same message. Bodies and metadata do not.
CREATE TABLE messages (
  id                  INTEGER PRIMARY KEY,
  token               BLOB    NOT NULL CHECK (length(token) = 16),  -- makes the id unguessable
  client_id           TEXT    NOT NULL,
  idempotency_key     TEXT    NOT NULL,
  digest              BLOB    NOT NULL CHECK (length(digest) = 32), -- of sender, target and body
  endpoint            INTEGER NOT NULL REFERENCES endpoints (id),
  sender_repo         TEXT    NOT NULL,
  target_repo         TEXT    NOT NULL,
  sender_pid          INTEGER NOT NULL,       -- as the kernel told it; 0: unknown
  correlation_id      TEXT,
  provenance          TEXT,
  metadata            TEXT,
  body                TEXT,
  admitted_at_ms      INTEGER NOT NULL,
  state               TEXT    NOT NULL,
  generation          INTEGER NOT NULL,
  max_attempts        INTEGER NOT NULL,
  ack_mode            TEXT    NOT NULL,
  attempt_count       INTEGER NOT NULL,
  serial              INTEGER NOT NULL,
  next_attempt_at_ms  INTEGER,
  lease_until_ms      INTEGER,
  ack_deadline_at_ms  INTEGER,
  last_failure_reason TEXT,
  acknowledged_at_ms  INTEGER,
  terminal_at_ms      INTEGER,
  waiting_reason      TEXT,
  waiting_since_ms    INTEGER,
  -- A list after IN would be built anew for every row; a search in a text is not.
  CHECK (instr('|pending|awaiting_ack|injected|acknowledged|failed|', '|' || state || '|')),
  CHECK (attempt_count BETWEEN 0 AND max_attempts AND attempt_count <= serial),
  CHECK ((state = 'awaiting_ack') = (ack_deadline_at_ms IS NOT NULL)),
  CHECK ((state = 'pending')
         = ((next_attempt_at_ms IS NULL) + (lease_until_ms IS NULL) = 1)),
  CHECK ((state IN ('injected', 'acknowledged', 'failed')) = (terminal_at_ms IS NOT NULL)),
  CHECK (body IS NOT NULL OR terminal_at_ms IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX messages_key ON messages (client_id, idempotency_key);
CREATE INDEX messages_open ON messages (id) WHERE terminal_at_ms IS NULL;
CREATE INDEX messages_open_endpoint ON messages (endpoint) WHERE terminal_at_ms IS NULL;
CREATE INDEX messages_to_purge ON messages (terminal_at_ms)
  WHERE terminal_at_ms IS NOT NULL AND body IS NOT NULL;

-- Endpoints that a message was bound to before its present one.
CREATE TABLE former_endpoints (
  message     INTEGER NOT NULL REFERENCES messages (id),
  endpoint    INTEGER NOT NULL REFERENCES endpoints (id),
  until_ms    INTEGER NOT NULL,
  PRIMARY KEY (message, endpoint)
) STRICT, WITHOUT ROWID;

-- One row per attempt; serial numbers never start again.
CREATE TABLE attempts (
  message     INTEGER NOT NULL REFERENCES messages (id),
  serial      INTEGER NOT NULL,
  endpoint    INTEGER NOT NULL REFERENCES endpoints (id),
  leased_at_ms INTEGER NOT NULL,
  lease_until_ms INTEGER NOT NULL,
  ended_at_ms INTEGER,
  outcome     TEXT    NOT NULL CHECK (outcome IN ('open', 'written', 'failed', 'superseded')),
  reason      TEXT,
  typed       INTEGER NOT NULL,               -- its text may be in the terminal, as far as known
  PRIMARY KEY (message, serial),
  CHECK ((outcome = 'open') = (ended_at_ms IS NULL))
) STRICT, WITHOUT ROWID;

-- Decisions of an operator: who and why.
CREATE TABLE retries (
  id       INTEGER PRIMARY KEY,
  message  INTEGER NOT NULL REFERENCES messages (id),
  at_ms    INTEGER NOT NULL,
  uid      INTEGER NOT NULL,
  pid      INTEGER NOT NULL,
  actor    TEXT    NOT NULL,
  why      TEXT    NOT NULL
) STRICT;

CREATE INDEX retries_message ON retries (message);
