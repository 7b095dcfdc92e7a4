-- What a worker does to the job that it holds. Each statement is one transaction. It is fenced by
-- the owner ($2) and the generation ($3) that the worker knows, raises the generation, and answers
-- the row: none means that the lease is lost. Nothing here looks at the process's clock.

-- name: read
SELECT * FROM bridge_delegations WHERE job_id = $1;

-- name: lock
-- Before a statement that must see every control: the intake adds them under the same lock.
SELECT FROM bridge_delegations WHERE job_id = $1 FOR UPDATE;

-- name: release
-- $5: the due time that the worker knows. A control that came meanwhile has set another: it stays.
UPDATE bridge_delegations
   SET generation = generation + 1, lease_owner = NULL, lease_expires_at = NULL,
       due_at = CASE WHEN due_at = $5 THEN statement_timestamp() + $4::interval ELSE due_at END
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
RETURNING *;

-- name: failed
-- A failure that may be repeated; again after the pause ($4). $5: what it costs, $7: of that, what
-- is no fault of the other side's absence.
UPDATE bridge_delegations
   SET generation = generation + 1, lease_owner = NULL, lease_expires_at = NULL,
       failures = failures + $5, faults = faults + $7, error_code = $6,
       due_at = statement_timestamp() + $4::interval
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
RETURNING *;

-- name: prepare
-- The boundary of attempt n: from here on the call may be on its way. The task's deadline starts.
UPDATE bridge_delegations
   SET generation = generation + 1, state = 'a2a_prepared', attempts = attempts + 1,
       prepared_at = coalesce(prepared_at, statement_timestamp()),
       deadline_at = coalesce(deadline_at, statement_timestamp() + $4::interval),
       context_id = $5
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
   AND state IN ('pending', 'a2a_prepared') AND attempts = never_left
RETURNING *;

-- name: never_left
-- Attempt n is proven not to have left. $5: what it costs; released until the pause is over.
UPDATE bridge_delegations
   SET generation = generation + 1, never_left = attempts, failures = failures + $5,
       error_code = $6, lease_owner = NULL, lease_expires_at = NULL,
       due_at = statement_timestamp() + $4::interval
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
   AND state = 'a2a_prepared' AND attempts > never_left
RETURNING *;

-- name: task_known
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, state = 'awaiting_task', task_id = $4, context_id = $5,
           task_known_at = statement_timestamp(), failures = 0, faults = 0, error_code = NULL
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND state = 'a2a_prepared'
    RETURNING *
), conversation AS (
    INSERT INTO bridge_contexts AS c (room_id, ghost, context_id)
    SELECT room_id, ghost, context_id FROM job WHERE context_id IS NOT NULL
    ON CONFLICT (room_id, ghost) DO UPDATE
       SET context_id = excluded.context_id, changed_at = statement_timestamp()
     WHERE c.context_id <> excluded.context_id
)
SELECT * FROM job;

-- name: polled
-- A poll that was answered: the count of failures begins anew.
UPDATE bridge_delegations
   SET generation = generation + 1, polls = polls + 1, failures = 0, faults = 0, error_code = NULL
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND state = 'awaiting_task'
RETURNING *;

-- name: poll_failed
UPDATE bridge_delegations
   SET generation = generation + 1, polls = polls + 1, failures = failures + 1, error_code = $4
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND state = 'awaiting_task'
RETURNING *;

-- name: ask
-- The task wants input: its clock stands still, the one for the answer starts. The question stays
-- in the result until it has a control of its own.
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, state = 'awaiting_input', task_id = $4, context_id = $5,
           task_known_at = coalesce(task_known_at, statement_timestamp()),
           result = $6, input_generation = input_generation + 1,
           input_deadline_at = statement_timestamp() + $7::interval,
           deadline_left = greatest(deadline_at - statement_timestamp(), interval '0'),
           deadline_at = NULL, failures = 0, faults = 0, error_code = NULL
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
       AND state IN ('a2a_prepared', 'awaiting_task')
    RETURNING *
), conversation AS (
    INSERT INTO bridge_contexts AS c (room_id, ghost, context_id)
    SELECT room_id, ghost, context_id FROM job WHERE context_id IS NOT NULL
    ON CONFLICT (room_id, ghost) DO UPDATE
       SET context_id = excluded.context_id, changed_at = statement_timestamp()
     WHERE c.context_id <> excluded.context_id
)
SELECT * FROM job;

-- name: question
-- The question gets its control ($4), and the temporary copy is cleared.
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, result = NULL
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
       AND state = 'awaiting_input' AND result IS NOT NULL
    RETURNING *
), added AS (
    INSERT INTO bridge_delegation_controls
           (control_id, job_id, kind, slot, input_generation, fingerprint, payload, message_id)
    SELECT $4, $1, 'question', input_generation, input_generation, $5::bytea, $6, $7 FROM job
    ON CONFLICT DO NOTHING
)
SELECT * FROM job;

-- name: answered
-- A continuation ($4) was taken, or nobody knows ($5 its end, $6 code): the clock goes on.
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, state = 'awaiting_task', input_deadline_at = NULL,
           deadline_at = statement_timestamp() + deadline_left, deadline_left = NULL,
           task_known_at = statement_timestamp(), result = NULL, failures = 0, faults = 0
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND state = 'awaiting_input'
       AND EXISTS (SELECT FROM bridge_delegation_controls
                    WHERE control_id = $4 AND state = 'prepared')
    RETURNING *
), ended AS (
    UPDATE bridge_delegation_controls
       SET state = $5, error_code = $6, payload = NULL, terminal_at = statement_timestamp()
     WHERE control_id = $4 AND job_id IN (SELECT job_id FROM job)
)
SELECT * FROM job;

-- name: result
-- What the room will be told: $4 the end, $5 the reason, $6 text, $7 artifacts, $8 the context,
-- $9 code, $10 the task. Committed before anything of it is shown.
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, state = 'reply_pending', intended = $4, reason = $5,
           result = $6, artifacts = $7::bytea, context_id = coalesce($8, context_id),
           error_code = $9, task_id = coalesce(task_id, $10), prompt = NULL,
           reply_pending_at = statement_timestamp(), failures = 0, faults = 0,
           input_deadline_at = NULL, deadline_left = NULL
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
       AND state IN ('pending', 'a2a_prepared', 'awaiting_task', 'awaiting_input')
    RETURNING *
), conversation AS (
    INSERT INTO bridge_contexts AS c (room_id, ghost, context_id)
    SELECT room_id, ghost, $8 FROM job WHERE $8::text IS NOT NULL
    ON CONFLICT (room_id, ghost) DO UPDATE
       SET context_id = excluded.context_id, changed_at = statement_timestamp()
     WHERE c.context_id <> excluded.context_id
)
SELECT * FROM job;

-- name: placeholder_planned
-- Committed before it is posted: whoever repeats the post knows what it was.
UPDATE bridge_delegations
   SET generation = generation + 1, placeholder = true
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
   AND state IN ('awaiting_task', 'awaiting_input') AND primary_event_id IS NULL
RETURNING *;

-- name: primary_sent
UPDATE bridge_delegations
   SET generation = generation + 1, primary_event_id = $4, faults = 0
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND primary_event_id IS NULL
RETURNING *;

-- name: edit_sent
UPDATE bridge_delegations
   SET generation = generation + 1, edit_event_id = $4, faults = 0
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
   AND state = 'reply_pending' AND edit_event_id IS NULL
RETURNING *;

-- name: part_sent
-- $5: how many there were before.
UPDATE bridge_delegations
   SET generation = generation + 1, part_event_ids = part_event_ids || $4::text, faults = 0
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
   AND state = 'reply_pending' AND cardinality(part_event_ids) = $5
RETURNING *;

-- name: replaced
-- The end that was intended cannot be shown ($4 end, $5 reason, $6 code): this one takes its place.
UPDATE bridge_delegations
   SET generation = generation + 1, intended = $4, reason = $5, error_code = $6,
       result = NULL, artifacts = NULL, faults = 0
 WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND state = 'reply_pending'
RETURNING *;

-- name: finish
-- The end: content is cleared, open controls end with their job, the lease is given back.
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, state = intended, terminal_at = statement_timestamp(),
           prompt = NULL, result = NULL, artifacts = NULL,
           lease_owner = NULL, lease_expires_at = NULL, failures = 0, faults = 0, deadline_at = NULL
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3 AND state = 'reply_pending'
    RETURNING *
), ended AS (
    UPDATE bridge_delegation_controls
       SET state = 'dead', error_code = coalesce(error_code, 'job_ended'), payload = NULL,
           terminal_at = statement_timestamp()
     WHERE job_id IN (SELECT job_id FROM job) AND terminal_at IS NULL
), woken AS (
    SELECT pg_notify('bridge_work', '') FROM job
)
SELECT job.*, (SELECT count(*) FROM woken) AS woken FROM job;

-- name: controls
SELECT * FROM bridge_delegation_controls WHERE job_id = $1 ORDER BY seq;

-- name: control_add
-- $4 id, $5 kind, $6 slot, $7 fingerprint, $8 payload, $9 transaction id, $10 most that there may be
WITH job AS (
    UPDATE bridge_delegations SET generation = generation + 1
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
    RETURNING *
), added AS (
    INSERT INTO bridge_delegation_controls
           (control_id, job_id, kind, slot, input_generation, fingerprint, payload, message_id)
    SELECT $4, $1, $5, $6, input_generation, $7::bytea, $8, $9 FROM job
     WHERE (SELECT count(*) FROM bridge_delegation_controls WHERE job_id = $1) < $10
    ON CONFLICT DO NOTHING
)
SELECT * FROM job;

-- name: control_prepare
WITH job AS (
    UPDATE bridge_delegations SET generation = generation + 1
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
       AND EXISTS (SELECT FROM bridge_delegation_controls
                    WHERE control_id = $4 AND job_id = $1 AND state = 'pending')
    RETURNING *
), prepared AS (
    UPDATE bridge_delegation_controls
       SET state = 'prepared', prepared_at = statement_timestamp()
     WHERE control_id = $4 AND job_id IN (SELECT job_id FROM job)
)
SELECT * FROM job;

-- name: control_again
-- The call of a control ($4) is proven not to have left: it is as if it had not been prepared, and
-- the job is given back until the pause ($5) is over. $6: what it costs, $7 code.
WITH job AS (
    UPDATE bridge_delegations
       SET generation = generation + 1, lease_owner = NULL, lease_expires_at = NULL,
           failures = failures + $6, error_code = $7,
           due_at = statement_timestamp() + $5::interval
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
       AND EXISTS (SELECT FROM bridge_delegation_controls
                    WHERE control_id = $4 AND job_id = $1 AND state = 'prepared')
    RETURNING *
), unprepared AS (
    UPDATE bridge_delegation_controls SET state = 'pending', prepared_at = NULL
     WHERE control_id = $4 AND job_id IN (SELECT job_id FROM job)
)
SELECT * FROM job;

-- name: control_end
-- $5 the state, $6 code, $7 the event that the room has
WITH job AS (
    UPDATE bridge_delegations SET generation = generation + 1
     WHERE job_id = $1 AND lease_owner = $2 AND generation = $3
       AND EXISTS (SELECT FROM bridge_delegation_controls
                    WHERE control_id = $4 AND job_id = $1 AND terminal_at IS NULL)
    RETURNING *
), ended AS (
    UPDATE bridge_delegation_controls
       SET state = $5, error_code = $6, event_id = coalesce(event_id, $7), payload = NULL,
           terminal_at = statement_timestamp()
     WHERE control_id = $4 AND job_id IN (SELECT job_id FROM job)
)
SELECT * FROM job;

-- name: conversation
SELECT context_id FROM bridge_contexts WHERE room_id = $1 AND ghost = $2;

-- name: clocks
-- How long each clock of a job has to run (seconds; below 0: it is over), by the database's time.
SELECT extract(epoch FROM deadline_at - statement_timestamp())::float8 AS task_s,
       extract(epoch FROM input_deadline_at - statement_timestamp())::float8 AS input_s,
       extract(epoch FROM statement_timestamp() - created_at)::float8 AS since_created_s,
       extract(epoch FROM statement_timestamp() - prepared_at)::float8 AS since_prepared_s,
       extract(epoch FROM statement_timestamp() - task_known_at)::float8 AS since_task_s,
       extract(epoch FROM statement_timestamp() - reply_pending_at)::float8 AS since_reply_s
  FROM bridge_delegations WHERE job_id = $1;
