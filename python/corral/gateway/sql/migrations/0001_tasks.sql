-- The tasks of the gateway. One writer. Ids of tasks and messages outlive content.
CREATE TABLE tasks (
  id            INTEGER PRIMARY KEY,
  task_id       TEXT    NOT NULL UNIQUE,
  agent         TEXT    NOT NULL,
  client        TEXT    NOT NULL,
  context_id    TEXT    NOT NULL,
  state         TEXT    NOT NULL CHECK (state IN (
    'submitted', 'working', 'input-required', 'completed', 'failed', 'canceled', 'rejected')),
  generation    INTEGER NOT NULL,
  text          TEXT    NOT NULL,               -- of the state's message
  created_at_ms INTEGER NOT NULL,
  changed_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX tasks_of_context ON tasks (client, agent, context_id, id);
CREATE INDEX open_tasks ON tasks (client)
  WHERE state IN ('submitted', 'working', 'input-required');

CREATE TABLE messages (
  id          INTEGER PRIMARY KEY,
  task        INTEGER NOT NULL REFERENCES tasks (id),
  client      TEXT    NOT NULL,
  role        TEXT    NOT NULL CHECK (role IN ('user', 'agent')),
  message_id  TEXT    NOT NULL,
  fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
  text        TEXT    NOT NULL,
  user        TEXT    NOT NULL,
  traceparent TEXT    NOT NULL,
  at_ms       INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX message_once ON messages (client, message_id) WHERE role = 'user';
CREATE INDEX messages_of_task ON messages (task, id);

-- What the agent has yet to get, in order. `taken`: it may have got it, nobody knows yet.
CREATE TABLE deliveries (
  id      INTEGER PRIMARY KEY,
  task    INTEGER NOT NULL REFERENCES tasks (id),
  kind    TEXT    NOT NULL CHECK (kind IN ('message', 'cancel')),
  message INTEGER REFERENCES messages (id),
  taken   INTEGER NOT NULL DEFAULT 0 CHECK (taken IN (0, 1)),
  CHECK ((kind = 'message') = (message IS NOT NULL))
) STRICT;

-- The answers that were read: each counts once, though it may be read again.
CREATE TABLE answers (
  agent     TEXT    NOT NULL,
  outbox_id TEXT    NOT NULL,
  at_ms     INTEGER NOT NULL,
  PRIMARY KEY (agent, outbox_id)
) STRICT, WITHOUT ROWID;

-- What came for a task that had ended: recorded, not shown.
CREATE TABLE late (
  id    INTEGER PRIMARY KEY,
  task  INTEGER NOT NULL REFERENCES tasks (id),
  state TEXT    NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;
