-- What `a2a-bridge doctor` asks of the ledger. It reads; it changes nothing.

-- name: now
-- The database's clock, whether it takes writes.
SELECT clock_timestamp() AS now,
       NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS writable;

-- name: workers
-- Registered workers whose session holds its lock.
SELECT count(*) FILTER (WHERE EXISTS (
           SELECT FROM pg_locks AS l
            WHERE l.locktype = 'advisory' AND l.classid = 1129272899 AND l.objsubid = 2
              AND l.objid = w.lock_id::oid AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       )) AS alive,
       count(*) AS registered
  FROM bridge_workers AS w;

-- name: jobs
-- Open jobs: how many, in the fullest room, the oldest, and due ones that nobody took for $1.
SELECT count(*) AS open,
       coalesce((SELECT max(n) FROM (
           SELECT count(*) AS n FROM bridge_delegations
            WHERE terminal_at IS NULL GROUP BY room_id) AS rooms), 0) AS fullest_room,
       coalesce(extract(epoch FROM statement_timestamp() - min(created_at)), 0)::float8
           AS oldest_s,
       count(*) FILTER (
           WHERE due_at < statement_timestamp() - $1::interval
             AND (lease_expires_at IS NULL
                  OR lease_expires_at < statement_timestamp() - $1::interval)
             AND NOT EXISTS (SELECT FROM bridge_delegations AS older
                              WHERE older.terminal_at IS NULL AND older.room_id = d.room_id
                                AND older.seq < d.seq)
       ) AS waiting
  FROM bridge_delegations AS d
 WHERE terminal_at IS NULL;

-- name: uncertain
SELECT count(*) FILTER (WHERE state = 'ambiguous') AS ambiguous,
       count(*) FILTER (WHERE state = 'dead') AS dead
  FROM bridge_delegations
 WHERE state IN ('ambiguous', 'dead') AND resolved_at IS NULL;

-- name: wedge
-- The last refused transaction, if no transaction was committed after it.
SELECT c.txn_id, c.times
  FROM bridge_transaction_conflicts AS c
 WHERE c.answer = 'reject'
   AND c.last_at > coalesce((SELECT max(committed_at) FROM bridge_appservice_transactions), '-infinity')
 ORDER BY c.last_at DESC
 LIMIT 1;

-- name: rooms
-- Where a ghost has something to say, or was lately not allowed to: the newest first.
SELECT room_id, ghost FROM bridge_delegations
 WHERE terminal_at IS NULL OR (reason = 'room_refused' AND terminal_at > statement_timestamp() - interval '1 day')
 GROUP BY room_id, ghost
 ORDER BY max(seq) DESC
 LIMIT $1;
