-- What the intake asks of the ledger. What was seen by `look` still holds when it is acted on: each
-- admission counts one further, from the count that it saw. Who comes second waits for the first,
-- changes nothing, and looks again.

-- name: begin
BEGIN;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: look
-- $1 transaction id, $2 digests of mentions, $3 event ids, $4 rooms, $5 whether jobs are wanted
SELECT latest.epoch, latest.body_digest, latest.event_ids, latest.event_digests,
       (SELECT array_agg(mention) FROM bridge_seen WHERE mention = ANY ($2::bytea[])) AS seen,
       (SELECT array_agg(event_id) FROM bridge_processed_events
         WHERE event_id = ANY ($3::text[])
           AND processed_at > statement_timestamp() - interval '24 hours') AS processed,
       (SELECT admissions FROM bridge_intake) AS admissions,
       (SELECT count(*) FROM bridge_delegations WHERE terminal_at IS NULL) AS total,
       (SELECT json_object_agg(room_id, queued) FROM (
           SELECT room_id, count(*) AS queued FROM bridge_delegations
            WHERE terminal_at IS NULL AND room_id = ANY ($4::text[]) GROUP BY room_id
       ) AS rooms) AS rooms,
       CASE WHEN $5::boolean THEN (
           SELECT json_agg(json_build_object(
               'job_id', job_id, 'event_id', event_id, 'room_id', room_id, 'sender', sender,
               'ghost', ghost, 'state', state, 'thread_root', thread_root,
               'leased', lease_owner IS NOT NULL, 'attempts', attempts,
               'input_generation', input_generation,
               'ours', (SELECT array_agg(event_id) FROM bridge_delegation_controls AS c
                         WHERE c.job_id = d.job_id AND c.event_id IS NOT NULL)
                       || primary_event_id,
               'controls', (SELECT count(*) FROM bridge_delegation_controls AS c
                             WHERE c.job_id = d.job_id)
           ) ORDER BY seq)
             FROM bridge_delegations AS d
            WHERE terminal_at IS NULL AND room_id = ANY ($4::text[])
       ) END AS jobs
  FROM (SELECT 1) AS one
  LEFT JOIN LATERAL (
      SELECT epoch, body_digest, event_ids, event_digests FROM bridge_appservice_transactions
       WHERE txn_id = $1 ORDER BY epoch DESC LIMIT 1
  ) AS latest ON true;

-- name: seen
-- $1 digests of mentions, $2 their event ids
SELECT (SELECT array_agg(mention) FROM bridge_seen WHERE mention = ANY ($1::bytea[])) AS seen,
       (SELECT array_agg(event_id) FROM bridge_processed_events
         WHERE event_id = ANY ($2::text[])) AS processed;

-- name: record
-- A transaction without a job; nothing if $1 admissions are not all. $2 to $6: the transaction.
WITH turn AS (
    UPDATE bridge_intake SET admissions = admissions + 1 WHERE admissions = $1 RETURNING admissions
)
INSERT INTO bridge_appservice_transactions (txn_id, epoch, body_digest, event_ids, event_digests)
SELECT $2::text, $3::integer, $4::bytea, $5::text[], $6::bytea[] FROM turn RETURNING id;

-- name: admit
-- The same with jobs: $7 to $17 are the mentions in order; a reason makes a denied row that has a
-- notice due.
WITH turn AS (
    UPDATE bridge_intake SET admissions = admissions + 1 WHERE admissions = $1 RETURNING admissions
), txn AS (
    INSERT INTO bridge_appservice_transactions
           (txn_id, epoch, body_digest, event_ids, event_digests)
    SELECT $2::text, $3::integer, $4::bytea, $5::text[], $6::bytea[] FROM turn RETURNING id
), given AS (
    SELECT * FROM unnest($7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[],
                         $13::text[], $14::text[], $15::text[], $16::text[], $17::bytea[])
        WITH ORDINALITY AS m (job_id, event_id, room_id, ghost, sender, thread_root, traceparent,
                              prompt, message_id, reason, mention, ord)
), seen AS (
    INSERT INTO bridge_seen SELECT mention FROM given, txn
), jobs AS (
    INSERT INTO bridge_delegations
           (job_id, transaction_id, event_id, room_id, ghost, sender, thread_root, traceparent,
            prompt, a2a_message_id, state, reason, notice_pending, terminal_at)
    SELECT job_id, txn.id, event_id, room_id, ghost, sender, thread_root, traceparent,
           CASE WHEN reason IS NULL THEN prompt END, message_id,
           CASE WHEN reason IS NULL THEN 'pending' ELSE 'denied' END, reason, reason,
           CASE WHEN reason IS NOT NULL THEN statement_timestamp() END
      FROM given, txn ORDER BY ord
)
SELECT id, pg_notify('bridge_work', '') FROM txn;

-- name: answered
-- Mentions that became controls: in another transaction they are no new jobs.
INSERT INTO bridge_seen SELECT unnest($1::bytea[]);

-- name: control
-- Arrays, in order. The parents are locked: none of them ends in between.
WITH parent AS (
    SELECT job_id FROM bridge_delegations
     WHERE job_id = ANY ($2::text[]) AND terminal_at IS NULL FOR UPDATE
), added AS (
    INSERT INTO bridge_delegation_controls
           (control_id, job_id, kind, source_event, slot, sender, input_generation, fingerprint,
            payload, message_id)
    SELECT control_id, job_id, kind, source_event, 0, sender, input_generation, fingerprint,
           payload, message_id
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[],
                  $7::bytea[], $8::text[], $9::text[])
           WITH ORDINALITY AS c (control_id, job_id, kind, source_event, sender,
                                 input_generation, fingerprint, payload, message_id, ord)
      JOIN parent USING (job_id)
     ORDER BY ord
    ON CONFLICT DO NOTHING
    RETURNING job_id
), due AS (
    UPDATE bridge_delegations AS d SET due_at = statement_timestamp()
      FROM (SELECT DISTINCT job_id FROM added) AS a WHERE d.job_id = a.job_id
    RETURNING d.job_id
)
SELECT count(*), count(pg_notify('bridge_work', job_id)) FROM due;

-- name: cancel_queued
-- What nobody has claimed yet is over at once; the room is told by a worker. What is not in the
-- answer was claimed since `look`: it gets a control. $1 jobs, $2 by whom each
UPDATE bridge_delegations AS d
   SET state = 'reply_pending', intended = 'denied', reason = 'canceled', prompt = NULL,
       canceled_by = asked.by, generation = generation + 1,
       reply_pending_at = statement_timestamp(), due_at = statement_timestamp()
  FROM (SELECT DISTINCT ON (job_id) * FROM unnest($1::text[], $2::text[]) AS a (job_id, by)) AS asked
 WHERE d.job_id = asked.job_id AND state = 'pending' AND lease_owner IS NULL
RETURNING d.job_id, pg_notify('bridge_work', '');

-- name: redact_queued
-- The one who asked took it back before it was begun: silent, as docs/ says. It may have been given
-- back with a control that nobody did: that ends with it.
WITH job AS (
    UPDATE bridge_delegations
       SET state = 'denied', reason = 'redacted', prompt = NULL, generation = generation + 1,
           terminal_at = statement_timestamp()
     WHERE event_id = ANY ($1::text[]) AND state = 'pending' AND lease_owner IS NULL
    RETURNING job_id
), ended AS (
    UPDATE bridge_delegation_controls
       SET state = 'dead', error_code = coalesce(error_code, 'job_ended'), payload = NULL,
           terminal_at = statement_timestamp()
     WHERE job_id IN (SELECT job_id FROM job) AND terminal_at IS NULL
)
SELECT job_id FROM job;

-- name: conflict
INSERT INTO bridge_transaction_conflicts AS c (txn_id, answer, last_digest) VALUES ($1, $2, $3)
ON CONFLICT (txn_id) DO UPDATE
   SET times = c.times + 1, answer = $2, last_digest = $3, last_at = statement_timestamp();
