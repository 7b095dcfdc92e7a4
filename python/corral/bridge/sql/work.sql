-- How jobs find their worker: claims, leases, takeovers, notices, retention.

-- name: begin_claim
BEGIN; SELECT pg_advisory_xact_lock(1129272898, 3);

-- name: commit
COMMIT;

-- name: claim
-- $1 worker, $2 lease, $3 most to take, $4 global bound on leases, $5 agents that are paused,
-- $6 jobs that this worker still runs.
-- In order of admission; a room's oldest open job is the only one of it that may be taken. The
-- choice is made once, apart from the update: within a join it could be made again for each row,
-- and would then take more than it may.
WITH taken AS MATERIALIZED (
    SELECT job_id, lease_owner FROM bridge_delegations AS head
     WHERE terminal_at IS NULL
       AND due_at <= statement_timestamp()
       AND (lease_expires_at IS NULL OR lease_expires_at <= statement_timestamp())
       AND NOT ghost = ANY ($5::text[])
       AND NOT job_id = ANY ($6::text[])
       AND NOT EXISTS (SELECT FROM bridge_delegations AS older
                        WHERE older.terminal_at IS NULL AND older.room_id = head.room_id
                          AND older.seq < head.seq)
     ORDER BY seq
     LIMIT greatest(0, least($3::bigint, $4::bigint - (
         SELECT count(*) FROM bridge_delegations
          WHERE terminal_at IS NULL AND lease_expires_at > statement_timestamp())))
       FOR UPDATE SKIP LOCKED
)
UPDATE bridge_delegations AS d
   SET lease_owner = $1, lease_expires_at = statement_timestamp() + $2::interval,
       generation = generation + 1,
       recoveries = recoveries + (taken.lease_owner IS NOT NULL)::integer
  FROM taken
 WHERE d.job_id = taken.job_id
RETURNING d.*, taken.lease_owner IS NOT NULL AS recovered;

-- name: disown
-- After a claim of which nobody knows whether it was committed: what we do not run, we do not hold.
UPDATE bridge_delegations SET lease_expires_at = statement_timestamp()
 WHERE terminal_at IS NULL AND lease_owner = $1 AND NOT job_id = ANY ($2::text[]);

-- name: renew
-- $3 the jobs that the worker runs; those that are not in the answer are lost.
UPDATE bridge_delegations SET lease_expires_at = statement_timestamp() + $2::interval
 WHERE lease_owner = $1 AND job_id = ANY ($3::text[])
RETURNING job_id;

-- name: clock_went_back
-- A time that is further ahead than it can have been set was set before the database's clock went
-- back: it is now. $1 the longest pause, $2 the longest that a homeserver is granted, $3 the lease.
-- Until when an answer from the room is awaited may be any time.
WITH open AS (
    SELECT job_id, state <> 'awaiting_input' AND due_at > statement_timestamp()
               + CASE error_code WHEN 'rate_limited' THEN $2::interval ELSE $1::interval END AS far
      FROM bridge_delegations WHERE terminal_at IS NULL
), notices AS (
    UPDATE bridge_delegations SET due_at = statement_timestamp()
     WHERE notice_pending IS NOT NULL AND due_at > statement_timestamp() + $1::interval
    RETURNING job_id
), jobs AS (
    UPDATE bridge_delegations AS d
       SET due_at = CASE WHEN far THEN statement_timestamp() ELSE due_at END,
           lease_expires_at = CASE WHEN lease_expires_at > statement_timestamp() + $3::interval
                                   THEN statement_timestamp() + $3::interval
                                   ELSE lease_expires_at END
      FROM open
     WHERE d.job_id = open.job_id AND d.terminal_at IS NULL
       AND (far OR lease_expires_at > statement_timestamp() + $3::interval)
    RETURNING d.job_id
)
SELECT job_id FROM notices UNION ALL SELECT job_id FROM jobs;

-- name: register
-- Again after each loss of the session: whoever took us for dead may have forgotten us.
INSERT INTO bridge_workers (worker_id, boot_id, pid_namespace, pid, start_ticks)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (worker_id) DO UPDATE SET pid = excluded.pid
RETURNING lock_id;

-- name: hold
-- The worker's own lock, for as long as this session lives.
SELECT pg_try_advisory_lock(1129272899, $1);

-- name: begin
BEGIN;

-- name: rollback
ROLLBACK;

-- name: idle
-- Whoever stands still in this transaction for so long is cut off.
SELECT set_config('idle_in_transaction_session_timeout', $1, true);

-- name: hold_intake
-- For as long as this transaction lives.
SELECT pg_try_advisory_xact_lock(1129272898, 4);

-- name: lives
-- Whether we are registered, and our lock is held by this very connection.
SELECT EXISTS (SELECT FROM bridge_workers WHERE worker_id = $1)
   AND EXISTS (SELECT FROM pg_locks
                WHERE locktype = 'advisory' AND classid = 1129272899 AND objsubid = 2
                  AND objid = $2::integer::oid AND granted AND pid = pg_backend_pid());

-- name: workers
-- Every worker but us, and whether the session that held its lock lives.
SELECT w.*, EXISTS (
           SELECT FROM pg_locks AS l
            WHERE l.locktype = 'advisory' AND l.classid = 1129272899 AND l.objsubid = 2
              AND l.objid = w.lock_id::oid AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       ) AS alive
  FROM bridge_workers AS w WHERE worker_id <> $1;

-- name: take_over
-- $1 workers whose session ended: their leases end now, but where a call may be on its way.
-- $2 workers whose process is gone as well: all of theirs end now.
UPDATE bridge_delegations AS d
   SET lease_expires_at = statement_timestamp()
 WHERE terminal_at IS NULL AND lease_expires_at > statement_timestamp()
   AND (lease_owner = ANY ($2::text[])
        OR lease_owner = ANY ($1::text[])
           AND NOT (state = 'a2a_prepared' AND attempts > never_left)
           AND NOT EXISTS (SELECT FROM bridge_delegation_controls AS c
                            WHERE c.job_id = d.job_id AND c.state = 'prepared'
                              AND c.kind IN ('cancel', 'continuation')))
RETURNING job_id;

-- name: forget_workers
-- But for one that has another session by now.
DELETE FROM bridge_workers AS w
 WHERE worker_id = ANY ($1::text[])
   AND NOT EXISTS (
           SELECT FROM pg_locks AS l
            WHERE l.locktype = 'advisory' AND l.classid = 1129272899 AND l.objsubid = 2
              AND l.objid = w.lock_id::oid AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
   AND NOT EXISTS (SELECT FROM bridge_delegations
                    WHERE terminal_at IS NULL AND lease_owner = w.worker_id);

-- name: notices
-- Denied at admission, the room was not told. The pause keeps other workers away meanwhile.
WITH taken AS MATERIALIZED (
    SELECT job_id FROM bridge_delegations
     WHERE notice_pending IS NOT NULL AND due_at <= statement_timestamp()
     ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE bridge_delegations AS d
   SET due_at = statement_timestamp() + $1::interval, failures = failures + 1
  FROM taken
 WHERE d.job_id = taken.job_id
RETURNING d.job_id, d.event_id, d.room_id, d.ghost, d.thread_root, d.notice_pending,
          extract(epoch FROM statement_timestamp() - d.created_at)::float8 AS age_s;

-- name: notice_sent
UPDATE bridge_delegations
   SET notice_pending = NULL, notice_event_id = coalesce(notice_event_id, $2), error_code = $3,
       generation = generation + 1
 WHERE job_id = $1 AND notice_pending IS NOT NULL;

-- name: forget_jobs
-- Evidence of what was delivered or denied, past the retention.
DELETE FROM bridge_delegations
 WHERE job_id IN (
     SELECT job_id FROM bridge_delegations
      WHERE state IN ('delivered', 'denied') AND notice_pending IS NULL
        AND terminal_at < statement_timestamp() - $1::interval
      LIMIT $2)
RETURNING job_id;

-- name: forget_transactions
DELETE FROM bridge_appservice_transactions
 WHERE id IN (
     SELECT id FROM bridge_appservice_transactions AS t
      WHERE committed_at < statement_timestamp() - $1::interval
        AND NOT EXISTS (SELECT FROM bridge_delegations WHERE transaction_id = t.id)
      LIMIT $2)
RETURNING id;

-- name: forget_markers
DELETE FROM bridge_processed_events
 WHERE processed_at < statement_timestamp() - interval '24 hours';
