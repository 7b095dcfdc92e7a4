-- The statements of the queue; each runs inside a transaction of the one writer.

-- name: instance
SELECT uuid FROM instance WHERE one = 1;

-- name: found_instance
INSERT INTO instance (one, uuid, created_at_ms) VALUES (1, :uuid, :now_ms);

-- name: message
SELECT m.*, e.endpoint_id, e.gone_at_ms FROM messages AS m JOIN endpoints AS e ON e.id = m.endpoint
WHERE m.id = :id;

-- name: message_by_key
SELECT m.*, e.endpoint_id, e.gone_at_ms FROM messages AS m JOIN endpoints AS e ON e.id = m.endpoint
WHERE m.client_id = :client_id AND m.idempotency_key = :idempotency_key;

-- name: was_bound
SELECT 1 FROM former_endpoints AS f JOIN endpoints AS e ON e.id = f.endpoint
WHERE f.message = :message AND e.endpoint_id = :endpoint_id;

-- name: admit
INSERT INTO messages (
  token, client_id, idempotency_key, digest, endpoint, sender_repo, target_repo, sender_pid,
  correlation_id, provenance, metadata, body, admitted_at_ms,
  state, generation, max_attempts, ack_mode, attempt_count, serial, next_attempt_at_ms
) VALUES (
  :token, :client_id, :idempotency_key, :digest, :endpoint, :sender_repo, :target_repo, :sender_pid,
  :correlation_id, :provenance, :metadata, :body, :now_ms,
  :state, :generation, :max_attempts, :ack_mode, 0, 0, :next_attempt_at_ms
);

-- name: target
-- The live endpoints that serve a repository, or the named one if it does; two say as much as more.
SELECT (SELECT coalesce(max(id), 0) FROM messages), e.id, e.endpoint_id, e.max_attempts, e.ack_mode
FROM serving AS s JOIN endpoints AS e ON e.id = s.endpoint
WHERE s.repo = :repo AND e.gone_at_ms IS NULL
  AND (:endpoint_id IS NULL OR e.endpoint_id = :endpoint_id)
LIMIT 2;

-- name: admit_all
-- Many at once: this, rows of `admit_row`, `admit_new`. Whose key is known is left out.
INSERT INTO messages (
  id, token, client_id, idempotency_key, digest, endpoint, sender_repo, target_repo, sender_pid,
  correlation_id, provenance, metadata, body, admitted_at_ms,
  state, generation, max_attempts, ack_mode, next_attempt_at_ms, attempt_count, serial
) VALUES

-- name: admit_row
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)

-- name: admit_new
ON CONFLICT (client_id, idempotency_key) DO NOTHING;

-- name: admitted_from
SELECT id FROM messages WHERE id >= ?;

-- name: advance
-- The guard: the state and generation that the decision was made from.
UPDATE messages SET
  state = :state, generation = :generation, max_attempts = :max_attempts, ack_mode = :ack_mode,
  attempt_count = :attempt_count, serial = :serial, next_attempt_at_ms = :next_attempt_at_ms,
  lease_until_ms = :lease_until_ms, ack_deadline_at_ms = :ack_deadline_at_ms,
  last_failure_reason = :last_failure_reason, acknowledged_at_ms = :acknowledged_at_ms,
  terminal_at_ms = :terminal_at_ms, waiting_reason = NULL, waiting_since_ms = NULL
WHERE id = :id AND state = :was_state AND generation = :was_generation;

-- name: rebind
UPDATE messages SET endpoint = :endpoint WHERE id = :id AND endpoint = :was_endpoint;

-- name: former_endpoint
INSERT INTO former_endpoints (message, endpoint, until_ms) VALUES (:id, :was_endpoint, :now_ms)
ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms;

-- name: waiting
UPDATE messages SET waiting_reason = :reason, waiting_since_ms = :now_ms
WHERE id = :id AND state = 'pending' AND waiting_reason IS NOT :reason;

-- name: open_messages
SELECT m.*, e.endpoint_id, e.gone_at_ms FROM messages AS m JOIN endpoints AS e ON e.id = m.endpoint
WHERE m.terminal_at_ms IS NULL ORDER BY m.id;

-- name: leased_of_endpoint
SELECT m.*, e.endpoint_id, e.gone_at_ms FROM messages AS m JOIN endpoints AS e ON e.id = m.endpoint
WHERE m.terminal_at_ms IS NULL AND m.endpoint = :endpoint AND m.lease_until_ms IS NOT NULL;

-- name: history
SELECT m.*, e.endpoint_id, e.gone_at_ms FROM messages AS m JOIN endpoints AS e ON e.id = m.endpoint
WHERE m.id < :before
  AND (:client_id IS NULL OR m.client_id = :client_id)
  AND (:target_repo IS NULL OR m.target_repo = :target_repo)
  AND (:state IS NULL OR m.state = :state)
  AND (:correlation_id IS NULL OR m.correlation_id = :correlation_id)
  AND m.id >= :from
ORDER BY m.id DESC LIMIT :limit;

-- name: newest
SELECT coalesce(max(id), 0) FROM messages;

-- name: begin_attempt
INSERT INTO attempts (message, serial, endpoint, leased_at_ms, lease_until_ms, outcome, typed)
VALUES (:id, :serial, :endpoint, :now_ms, :lease_until_ms, 'open', 1);

-- name: end_attempt
UPDATE attempts
SET ended_at_ms = :now_ms, outcome = :outcome, reason = :reason, typed = :typed
WHERE message = :id AND serial = :serial AND outcome = 'open';

-- name: unacknowledged
UPDATE attempts SET outcome = 'failed', reason = :reason
WHERE message = :id AND serial = :serial AND outcome = 'written';

-- name: attempts
SELECT a.*, e.endpoint_id FROM attempts AS a JOIN endpoints AS e ON e.id = a.endpoint
WHERE a.message = :id ORDER BY a.serial DESC LIMIT :limit;

-- name: unsure_attempts
-- Attempts into this endpoint whose text may still be in its composer. What came before one that is
-- known to be written is settled: a redelivery must not be taken for the end of such an attempt.
SELECT serial, reason IS 'not_read' AS unread FROM attempts
WHERE message = :id AND endpoint = :endpoint AND serial < :serial
  AND outcome IN ('open', 'failed') AND typed
  AND reason IS NOT 'ack_timeout'
  AND serial > coalesce((
    SELECT max(serial) FROM attempts
    WHERE message = :id AND endpoint = :endpoint AND (outcome = 'written' OR reason = 'ack_timeout')
  ), 0)
ORDER BY serial;

-- name: newest_unsure
-- As `unsure_attempts`, of many messages; the last one typed comes first.
SELECT a.message FROM json_each(:messages) AS one JOIN attempts AS a ON a.message = one.value
WHERE a.endpoint = :endpoint AND a.outcome IN ('open', 'failed') AND a.typed
  AND a.reason IS NOT 'ack_timeout'
  AND NOT EXISTS (
    SELECT 1 FROM attempts AS later
    WHERE later.message = a.message AND later.endpoint = a.endpoint AND later.serial > a.serial
      AND (later.outcome = 'written' OR later.reason = 'ack_timeout')
  )
GROUP BY a.message ORDER BY max(a.leased_at_ms) DESC, a.message DESC LIMIT :limit;

-- name: record_retry
INSERT INTO retries (message, at_ms, uid, pid, actor, why)
VALUES (:id, :now_ms, :uid, :pid, :actor, :why);

-- name: retries
SELECT at_ms, uid, pid, actor, why FROM retries WHERE message = :id ORDER BY id DESC LIMIT :limit;

-- name: record_rebinding
INSERT INTO rebindings (message, at_ms, from_endpoint, to_endpoint, uid, pid, actor, why)
VALUES (:id, :now_ms, :was_endpoint, :endpoint, :uid, :pid, :actor, :why);

-- name: rebindings
SELECT r.at_ms, r.uid, r.pid, r.actor, r.why, f.endpoint_id AS from_endpoint_id,
  t.endpoint_id AS to_endpoint_id
FROM rebindings AS r
JOIN endpoints AS f ON f.id = r.from_endpoint JOIN endpoints AS t ON t.id = r.to_endpoint
WHERE r.message = :id ORDER BY r.id DESC LIMIT :limit;

-- name: purge
UPDATE messages SET body = NULL, metadata = NULL
WHERE id IN (
  SELECT id FROM messages
  WHERE terminal_at_ms IS NOT NULL AND body IS NOT NULL AND terminal_at_ms < :before_ms
  ORDER BY terminal_at_ms LIMIT :limit
);

-- name: endpoint
SELECT * FROM endpoints WHERE endpoint_id = :endpoint_id;

-- name: endpoint_at
SELECT * FROM endpoints WHERE terminal = :terminal AND gone_at_ms IS NULL;

-- name: live_endpoints
SELECT * FROM endpoints WHERE gone_at_ms IS NULL ORDER BY id;

-- name: live_endpoint_count
SELECT count(*) FROM endpoints WHERE gone_at_ms IS NULL;

-- name: serving
SELECT e.* FROM serving AS s JOIN endpoints AS e ON e.id = s.endpoint
WHERE s.repo = :repo AND e.gone_at_ms IS NULL ORDER BY e.id LIMIT 2;

-- name: serves
SELECT 1 FROM serving WHERE repo = :repo AND endpoint = :endpoint;

-- name: register
INSERT INTO endpoints (
  endpoint_id, terminal, repos, profile, label, max_attempts, ack_mode,
  registered_at_ms, heartbeat_at_ms
) VALUES (
  :endpoint_id, :terminal, :repos, :profile, :label, :max_attempts, :ack_mode, :now_ms, :now_ms
);

-- name: register_again
UPDATE endpoints SET repos = :repos, profile = :profile, label = :label,
  max_attempts = :max_attempts, ack_mode = :ack_mode, heartbeat_at_ms = :now_ms
WHERE id = :id AND gone_at_ms IS NULL;

-- name: serve_repo
INSERT INTO serving (repo, endpoint) VALUES (:repo, :endpoint);

-- name: serve_nothing
DELETE FROM serving WHERE endpoint = :endpoint;

-- name: heartbeat
UPDATE endpoints SET heartbeat_at_ms = :now_ms
WHERE endpoint_id = :endpoint_id AND gone_at_ms IS NULL;

-- name: endpoint_gone
UPDATE endpoints SET gone_at_ms = :now_ms, gone_reason = :reason
WHERE id = :id AND gone_at_ms IS NULL;
