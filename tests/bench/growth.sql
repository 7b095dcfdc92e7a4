-- Turns as they are once they are done: acknowledged, scrubbed, half of them with the producer's id.
-- name: grow
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO turns (
  id, source_id, turn_id, incarnation, entry, kind, received_at_ms, state, generation, ack, closed,
  ack_attempts, attempt, starts, release, parked, identity, channel, outcome, slot, dead_copy, effect,
  effect_attempts, outbox_id, terminal_at_ms)
SELECT
  i, :source, 'scout.echo.1.' || (:first_ms + i) || '-0', 1,
  unhex_ms(:first_ms + i), 'message', :now_ms, 'done', 2, 'acked', 1,
  1, 0, 0, 0, 0, randomblob(32), CAST('c' || (i % 100) AS BLOB), 'completed', 'reply', 0, 1,
  0, CAST((:first_ms + i) || '-1' AS BLOB), :now_ms
FROM n;

-- name: stand_behind
UPDATE sources SET sequence = 1, incarnation = 1, last_taken = :last, watermark = :last
WHERE id = :source;
