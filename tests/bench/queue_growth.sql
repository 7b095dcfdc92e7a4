-- Messages as they are once they are acknowledged, with keys that fall anywhere.
-- name: messages
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO messages (
  token, client_id, idempotency_key, digest, endpoint, sender_repo, target_repo, sender_pid, body,
  admitted_at_ms, state, generation, max_attempts, ack_mode, attempt_count, serial,
  acknowledged_at_ms, terminal_at_ms)
SELECT
  randomblob(16), 'engine', lower(hex(randomblob(8))), :digest, :endpoint, 'local', 'shop', 0, :body,
  :now_ms - :count + i, 'acknowledged', 4, 5, 'acknowledged', 1, 1,
  :now_ms - :count + i, :now_ms - :count + i
FROM n;

-- name: attempts
INSERT INTO attempts (
  message, serial, endpoint, leased_at_ms, lease_until_ms, ended_at_ms, outcome, typed)
SELECT id, 1, endpoint, admitted_at_ms, admitted_at_ms + 30000, admitted_at_ms, 'written', 1
FROM messages;
