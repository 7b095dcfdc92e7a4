-- Decisions of an operator to give a message of an ended session to another: who and why.
CREATE TABLE rebindings (
  id            INTEGER PRIMARY KEY,
  message       INTEGER NOT NULL REFERENCES messages (id),
  at_ms         INTEGER NOT NULL,
  from_endpoint INTEGER NOT NULL REFERENCES endpoints (id),
  to_endpoint   INTEGER NOT NULL REFERENCES endpoints (id),
  uid           INTEGER NOT NULL,
  pid           INTEGER NOT NULL,
  actor         TEXT    NOT NULL,
  why           TEXT    NOT NULL
) STRICT;

CREATE INDEX rebindings_message ON rebindings (message);
