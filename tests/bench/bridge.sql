-- What the benchmark of the bridge writes itself.

-- name: make
CREATE DATABASE bridge ENCODING 'UTF8' TEMPLATE template0;

-- name: make_large
CREATE DATABASE large ENCODING 'UTF8' TEMPLATE template0;

-- name: make_bare_database
CREATE DATABASE bare ENCODING 'UTF8' TEMPLATE template0;

-- name: make_bare
-- A table with what a mention's row gets, and one index.
CREATE TABLE bare (
    job_id text PRIMARY KEY, event_id text, room_id text, ghost text, sender text, thread_root text,
    traceparent text, prompt text, message_id text, reason text, mention bytea);

-- name: bare_one
INSERT INTO bare VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: bare_many
INSERT INTO bare SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::bytea[]);

-- name: clear
-- Between two steps, which is not measured: what waits has ended, so that the queue is never full.
UPDATE bridge_delegations
   SET state = 'delivered', reason = 'answered', prompt = NULL, terminal_at = statement_timestamp()
 WHERE state = 'pending' AND lease_owner IS NULL;

-- name: admissions
SELECT admissions FROM bridge_intake;

-- name: counts
SELECT count(*) FILTER (WHERE terminal_at IS NULL) AS open,
       count(*) FILTER (WHERE lease_owner IS NOT NULL) AS leased,
       count(*) FILTER (WHERE reason = 'answered') AS answered,
       count(*) FILTER (WHERE state = 'denied') AS denied,
       count(*) AS jobs
  FROM bridge_delegations;

-- name: ended
SELECT count(*) FROM bridge_delegations WHERE terminal_at IS NOT NULL;

-- name: owners
SELECT DISTINCT lease_owner FROM bridge_delegations WHERE lease_owner IS NOT NULL;

-- name: still_owned
SELECT count(*) FROM bridge_delegations
 WHERE terminal_at IS NULL AND lease_owner = ANY ($1::text[]);

-- name: end_times
-- In order, in seconds.
SELECT extract(epoch FROM terminal_at)::float8 AS at FROM bridge_delegations
 WHERE event_id = ANY ($1::text[]) ORDER BY terminal_at;

-- name: forget
DELETE FROM bridge_delegations WHERE terminal_at IS NOT NULL;

-- name: grow_transactions
INSERT INTO bridge_appservice_transactions (txn_id, body_digest, event_ids, event_digests)
SELECT 'old-' || n, sha256(n::text::bytea), ARRAY['$old-' || n], ARRAY[sha256(n::text::bytea)]
  FROM generate_series(1, $1::bigint / 10) AS n;

-- name: grow_seen
INSERT INTO bridge_seen SELECT sha256(('old-' || n)::bytea) FROM generate_series(1, $1::bigint) AS n;

-- name: grow_jobs
-- Jobs as they are once they have been delivered.
INSERT INTO bridge_delegations
       (job_id, transaction_id, event_id, room_id, ghost, sender, state, intended, reason,
        generation, terminal_at, a2a_message_id, attempts, prepared_at, deadline_at, context_id,
        task_id, task_known_at, polls, reply_pending_at, primary_event_id)
SELECT encode(sha256(n::text::bytea), 'hex'), (n - 1) / 10 + 1, '$old-' || n,
       '!room' || n % 100 || ':corral.test', 'echo', '@alice:corral.test', 'delivered', 'delivered',
       'answered', 8, now() - interval '1 hour', encode(sha256(('m' || n)::bytea), 'hex'), 1, now(),
       now(), 'context-' || n, 'task-' || n, now(), 1, now(), '$reply-' || n
  FROM generate_series(1, $1::bigint / 10 * 10) AS n;

-- name: settle
VACUUM ANALYZE;

-- name: give_back
UPDATE bridge_delegations SET lease_owner = NULL, lease_expires_at = NULL
 WHERE lease_owner IS NOT NULL;

-- name: clear_one
UPDATE bridge_delegations
   SET state = 'delivered', reason = 'answered', prompt = NULL, terminal_at = statement_timestamp()
 WHERE state = 'pending' AND room_id = '!one' AND terminal_at IS NULL;

-- name: size
SELECT pg_database_size(current_database());
