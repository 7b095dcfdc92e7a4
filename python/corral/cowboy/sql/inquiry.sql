-- What the operator's commands ask about one entry, on a connection of its own.

-- name: turns_of_entry
SELECT t.* FROM turns t JOIN sources s ON s.id = t.source_id
WHERE s.name = ? AND t.incarnation = ? AND t.entry = ?;

-- name: turns_of_message
SELECT t.* FROM turns t JOIN sources s ON s.id = t.source_id
WHERE s.name = ? AND t.identity >= ? AND t.identity <= ? ORDER BY t.id DESC LIMIT ?;

-- name: turns_of_answer
SELECT t.* FROM turns t JOIN sources s ON s.id = t.source_id
WHERE s.name = ? AND t.outbox_id = ? ORDER BY t.id DESC LIMIT ?;

-- name: notes_of_entry
SELECT n.at_ms, n.kind, n.detail FROM notes n JOIN sources s ON s.id = n.source_id
WHERE s.name = ? AND n.entry = ? ORDER BY n.id DESC LIMIT ?;

-- name: integrity
PRAGMA quick_check(1);

-- name: anomalies_since
SELECT n.kind, count(*) AS count, max(n.at_ms) AS last_ms FROM notes n
JOIN sources s ON s.id = n.source_id WHERE s.name = ? AND n.at_ms >= ? GROUP BY n.kind;
