-- What an operator asks and does. Nothing here answers content.

-- name: list
-- $1 states, or NULL: what is open or needs a look; $2 most
SELECT job_id, event_id, state, reason, room_id, ghost, attempts, failures, error_code, resolved_at,
       lease_owner IS NOT NULL AS leased,
       extract(epoch FROM statement_timestamp() - created_at)::float8 AS age_s
  FROM bridge_delegations
 WHERE CASE WHEN $1::text[] IS NULL
            THEN terminal_at IS NULL OR state IN ('ambiguous', 'dead') AND resolved_at IS NULL
            ELSE state = ANY ($1::text[]) END
 ORDER BY seq DESC LIMIT $2;

-- name: find
-- By any id that belongs to it. A homeserver's transaction may have brought several, and its number
-- may come again.
SELECT job_id FROM bridge_delegations AS d
 WHERE $1 IN (job_id, event_id, a2a_message_id, task_id, primary_event_id, edit_event_id,
              notice_event_id)
    OR $1 = ANY (part_event_ids)
    OR transaction_id IN (SELECT id FROM bridge_appservice_transactions WHERE txn_id = $1)
    OR EXISTS (SELECT FROM bridge_delegation_controls AS c
                WHERE c.job_id = d.job_id AND $1 IN (c.control_id, c.source_event, c.event_id))
 ORDER BY seq LIMIT 20;

-- name: show
SELECT d.job_id, d.seq, d.event_id, d.room_id, d.ghost, d.sender, d.thread_root, d.traceparent,
       d.state, d.intended, d.reason, d.error_code, d.generation, d.created_at, d.due_at,
       d.terminal_at, d.lease_owner, d.lease_expires_at, d.failures, d.recoveries,
       d.a2a_message_id, d.attempts, d.never_left, d.prepared_at, d.deadline_at, d.context_id,
       d.task_id, d.task_known_at, d.polls, d.input_generation, d.input_deadline_at,
       d.reply_pending_at, d.placeholder, d.primary_event_id, d.edit_event_id, d.part_event_ids,
       d.notice_pending, d.notice_event_id, d.resolved_at, d.resolved_note, d.resolved_by,
       d.canceled_by, d.faults, t.txn_id, t.epoch,
       d.lease_expires_at > statement_timestamp() AS lease_valid,
       extract(epoch FROM d.due_at - statement_timestamp())::float8 AS due_in_s,
       extract(epoch FROM statement_timestamp() - d.created_at)::float8 AS age_s,
       (SELECT min(older.job_id) FROM bridge_delegations AS older
         WHERE older.terminal_at IS NULL AND older.room_id = d.room_id AND older.seq < d.seq
           AND d.terminal_at IS NULL) AS waits_for
  FROM bridge_delegations AS d
  LEFT JOIN bridge_appservice_transactions AS t ON t.id = d.transaction_id
 WHERE d.job_id = $1;

-- name: controls
SELECT control_id, kind, source_event, slot, sender, state, error_code, event_id, created_at,
       prepared_at, terminal_at
  FROM bridge_delegation_controls WHERE job_id = $1 ORDER BY seq;

-- name: resolve
UPDATE bridge_delegations
   SET resolved_at = statement_timestamp(), resolved_note = $2, resolved_by = $3,
       generation = generation + 1
 WHERE job_id = $1 AND state IN ('ambiguous', 'dead') AND resolved_at IS NULL
RETURNING state;

-- name: gauges
SELECT state, count(*) AS jobs,
       extract(epoch FROM statement_timestamp() - min(created_at))::float8 AS oldest_s
  FROM bridge_delegations WHERE terminal_at IS NULL GROUP BY state;

-- name: unresolved
SELECT state, count(*) AS jobs FROM bridge_delegations
 WHERE state IN ('ambiguous', 'dead') AND resolved_at IS NULL GROUP BY state;

-- name: conflicts
SELECT coalesce(sum(times), 0)::bigint FROM bridge_transaction_conflicts;
