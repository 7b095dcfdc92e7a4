-- What the harness reads from a ledger after its daemon has ended.

-- name: turns
SELECT s.name, t.turn_id, t.entry, t.kind, t.state, t.outcome, t.ack, t.starts,
       t.content IS NULL AND t.body IS NULL, t.message_id, t.channel
FROM turns t JOIN sources s ON s.id = t.source_id ORDER BY s.name, t.entry;

-- name: notes
SELECT s.name, n.kind, n.entry FROM notes n JOIN sources s ON s.id = n.source_id;

-- name: integrity
PRAGMA integrity_check;

-- name: foreign_keys
PRAGMA foreign_key_check;
