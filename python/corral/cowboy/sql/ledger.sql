-- name: create_ledger
INSERT INTO ledger (one, uuid, agent, created_at_ms) VALUES (1, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: read_ledger
SELECT uuid, agent FROM ledger;

-- name: raise_sequence
UPDATE sources SET sequence = max(sequence + 1, ?) WHERE id = ? RETURNING sequence;

-- name: create_source
INSERT INTO sources (name, incarnation, sequence, watermark, last_taken)
VALUES (?, 0, 0, zeroblob(16), zeroblob(16)) ON CONFLICT DO NOTHING;

-- name: read_source
SELECT id, incarnation, watermark, last_taken, sequence FROM sources WHERE name = ?;

-- name: move_source
UPDATE sources SET incarnation = ?, watermark = ?, last_taken = ?
WHERE id = ? AND incarnation = ?;

-- name: last_row
SELECT coalesce(max(id), 0) FROM turns;

-- The columns of a turn, in the order in which `store` binds and reads them.
-- name: insert_turn
INSERT INTO turns (
  id, source_id, turn_id, incarnation, entry, kind, received_at_ms, state, intent, generation, ack,
  closed, ack_attempts, attempt, starts, started_at_ms, release, parked, identity, cancels, sender,
  channel, thread, message_id, traceparent, outcome, slot, detail, dead_copy, effect,
  effect_attempts, outbox_id, dead_id, terminal_at_ms, body, content)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?);

-- The common new turn: a message that is answered in the tick that takes it in. Binding thirty-six
-- values is half of an insert.
-- name: insert_answered
INSERT INTO turns (
  id, source_id, turn_id, incarnation, entry, kind, received_at_ms, state, intent, generation, ack,
  closed, ack_attempts, attempt, starts, release, parked, identity, sender, channel, thread,
  message_id, traceparent, outcome, slot, dead_copy, effect, effect_attempts, body, content)
VALUES (?, ?, ?, ?, ?, 'message', ?, 'replying', 'done', 1, 'unacked',
        0, ?, 0, 0, 0, 0, ?, ?, ?, ?,
        ?, ?, 'completed', 'reply', 0, 1, 0, ?, ?);

-- Every change of a turn is guarded by the state and generation it was read with.
-- name: update_turn
UPDATE turns SET
  state = ?, intent = ?, generation = ?, ack = ?, closed = ?, ack_attempts = ?, attempt = ?,
  starts = ?, started_at_ms = ?, release = ?, parked = ?, outcome = ?, slot = ?, detail = ?,
  dead_copy = ?, effect = ?, effect_attempts = ?, outbox_id = ?, dead_id = ?, terminal_at_ms = ?,
  body = ?, content = ?
WHERE id = ? AND state = ? AND generation = ?;

-- The common change: the outbox has the answer. The binding stays, the content goes. The first is
-- of a turn that is acknowledged too, at the first attempt of everything.
-- name: finish_done
UPDATE turns SET
  state = 'done', intent = NULL, generation = generation + 1, ack = 'acked', closed = 1,
  ack_attempts = 1, effect_attempts = 0, outbox_id = ?, dead_id = NULL, terminal_at_ms = ?,
  body = NULL, content = NULL
WHERE id = ? AND state = 'replying' AND generation = ?;

-- name: finish_turn
UPDATE turns SET
  state = ?, intent = NULL, generation = ?, ack = ?, closed = ?, ack_attempts = ?,
  effect_attempts = ?, outbox_id = ?, dead_id = ?, terminal_at_ms = ?, body = NULL, content = NULL
WHERE id = ? AND state = 'replying' AND generation = ?;

-- name: open_turns
SELECT * FROM turns WHERE source_id = ? AND closed = 0 AND parked = 0 ORDER BY incarnation, entry;

-- name: parked_counts
SELECT coalesce(channel, x''), count(*) FROM turns
WHERE source_id = ? AND parked = 1 GROUP BY 1;

-- name: parked_of_channel
SELECT * FROM turns WHERE source_id = ? AND parked = 1 AND coalesce(channel, x'') = ?
ORDER BY entry LIMIT ?;

-- name: parked_of_other_incarnations
SELECT * FROM turns WHERE source_id = ? AND parked = 1 AND incarnation <> ?
ORDER BY entry;

-- name: by_entry
SELECT * FROM turns WHERE source_id = ? AND incarnation = ? AND entry = ?;

-- name: by_message
SELECT * FROM turns WHERE source_id = ? AND identity >= ? AND identity <= ?
  AND kind = 'message' AND id < ?
ORDER BY id DESC LIMIT 1;

-- name: same_message
SELECT identity FROM turns WHERE source_id = ? AND identity >= ? AND identity <= ?;

-- name: first_open
SELECT entry FROM turns WHERE source_id = ? AND incarnation = ? AND closed = 0
ORDER BY entry LIMIT 1;

-- name: add_note
INSERT INTO notes (source_id, at_ms, kind, entry, detail) VALUES (?, ?, ?, ?, ?);

-- name: read_notes
SELECT at_ms, kind, entry, detail FROM notes WHERE source_id = ? ORDER BY id DESC LIMIT ?;

-- name: count
INSERT INTO tallies (source_id, name, count) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count;

-- name: read_tallies
SELECT name, count FROM tallies WHERE source_id = ?;

-- Tombstones go only below the watermark, when acknowledged, and not before their retention.
-- The plus keeps SQLite from walking a whole index of the source instead of a few row numbers.
-- name: purge_turns
DELETE FROM turns WHERE id IN (
  SELECT id FROM turns WHERE id > ? AND id <= ? AND closed = 1 AND terminal_at_ms < ?
    AND +source_id = ? AND (incarnation < ? OR entry <= ?));

-- name: purge_notes
DELETE FROM notes WHERE source_id = ? AND id IN (
  SELECT id FROM notes WHERE source_id = ? AND at_ms < ? ORDER BY id LIMIT ?);
