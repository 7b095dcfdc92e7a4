-- oldest: 1
-- The bridge's ledger. The first line of a migration says how many migrations a release must know
-- of at least to run on the schema that it makes.

CREATE TABLE bridge_appservice_transactions (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    txn_id        text        NOT NULL,
    epoch         integer     NOT NULL DEFAULT 0,  -- above 0: the id had been used for other events
    body_digest   bytea       NOT NULL CHECK (octet_length(body_digest) = 32),
    event_ids     text[]      NOT NULL,
    event_digests bytea[]     NOT NULL,
    committed_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    UNIQUE (txn_id, epoch),
    CHECK (cardinality(event_ids) = cardinality(event_digests))
);
CREATE INDEX bridge_transactions_by_age ON bridge_appservice_transactions (committed_at);

-- One row for each id that came with other events: evidence without content.
CREATE TABLE bridge_transaction_conflicts (
    txn_id      text        PRIMARY KEY,
    answer      text        NOT NULL CHECK (answer IN ('reject', 'epoch')),
    times       bigint      NOT NULL DEFAULT 1,
    last_digest bytea       NOT NULL CHECK (octet_length(last_digest) = 32),
    first_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    last_at     timestamptz NOT NULL DEFAULT statement_timestamp()
);

-- A digest for each mention that was ever admitted: "once" outlives the tombstones.
CREATE TABLE bridge_seen (
    mention bytea PRIMARY KEY CHECK (octet_length(mention) = 32)
);

-- The marker of earlier releases, honoured for a day.
CREATE TABLE IF NOT EXISTS bridge_processed_events (
    event_id     text        PRIMARY KEY,
    processed_at timestamptz NOT NULL DEFAULT statement_timestamp()
);

CREATE TABLE bridge_contexts (
    room_id    text        NOT NULL,
    ghost      text        NOT NULL,
    context_id text        NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (room_id, ghost)
);

CREATE TABLE bridge_workers (
    worker_id     text        PRIMARY KEY,
    lock_id       integer     GENERATED ALWAYS AS IDENTITY UNIQUE,
    boot_id       text        NOT NULL,
    pid_namespace text        NOT NULL,
    pid           integer     NOT NULL,
    start_ticks   bigint      NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT statement_timestamp()
);

CREATE TABLE bridge_delegations (
    seq                bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,  -- the order of admission
    job_id             text        PRIMARY KEY,
    transaction_id     bigint      REFERENCES bridge_appservice_transactions (id),
    event_id           text        NOT NULL,
    room_id            text        NOT NULL,
    ghost              text        NOT NULL,
    sender             text        NOT NULL,
    thread_root        text,
    traceparent        text,

    state              text        NOT NULL DEFAULT 'pending' CHECK (state IN (
        'pending', 'a2a_prepared', 'awaiting_task', 'awaiting_input', 'reply_pending',
        'delivered', 'denied', 'ambiguous', 'dead')),
    intended           text        CHECK (
        intended IN ('delivered', 'denied', 'ambiguous', 'dead')),
    reason             text,
    error_code         text,
    generation         bigint      NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL DEFAULT statement_timestamp(),
    due_at             timestamptz NOT NULL DEFAULT statement_timestamp(),
    terminal_at        timestamptz,

    lease_owner        text,
    lease_expires_at   timestamptz,
    failures           integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),  -- in a row
    recoveries         integer     NOT NULL DEFAULT 0,

    -- content: empty in terminal rows
    prompt             text,
    result             text,
    artifacts          bytea,

    -- the call: open while attempts > never_left
    a2a_message_id     text        NOT NULL,
    attempts           integer     NOT NULL DEFAULT 0,
    never_left         integer     NOT NULL DEFAULT 0,
    prepared_at        timestamptz,
    deadline_at        timestamptz,  -- of the task; paused while input is awaited
    deadline_left      interval,
    context_id         text,
    task_id            text,
    task_known_at      timestamptz,
    polls              bigint      NOT NULL DEFAULT 0,
    input_generation   integer     NOT NULL DEFAULT 0,
    input_deadline_at  timestamptz,

    -- what the room has: each id is written once
    reply_pending_at   timestamptz,
    placeholder        boolean     NOT NULL DEFAULT false,  -- committed before it is posted
    primary_event_id   text,
    edit_event_id      text,
    part_event_ids     text[]      NOT NULL DEFAULT '{}',
    notice_pending     text,
    notice_event_id    text,

    resolved_at        timestamptz,
    resolved_note      text,

    UNIQUE (event_id, ghost),
    CHECK ((terminal_at IS NOT NULL) = (state IN ('delivered', 'denied', 'ambiguous', 'dead'))),
    CHECK ((lease_owner IS NULL) = (lease_expires_at IS NULL)),
    CHECK (terminal_at IS NULL OR lease_owner IS NULL),
    CHECK (terminal_at IS NULL
        OR (prompt IS NULL AND result IS NULL AND artifacts IS NULL)),
    CHECK ((input_deadline_at IS NOT NULL) = (state = 'awaiting_input')),
    CHECK ((deadline_left IS NOT NULL) = (state = 'awaiting_input')),
    CHECK ((state = 'reply_pending') <= (intended IS NOT NULL AND reason IS NOT NULL)),
    CHECK (terminal_at IS NULL OR reason IS NOT NULL),
    CHECK (never_left BETWEEN 0 AND attempts AND attempts <= never_left + 1),
    CHECK (state <> 'pending' OR attempts = 0),
    CHECK (state <> 'a2a_prepared' OR (attempts > 0 AND task_id IS NULL)),
    CHECK ((state IN ('awaiting_task', 'awaiting_input')) <= (task_id IS NOT NULL)),
    CHECK (notice_pending IS NULL OR terminal_at IS NOT NULL),
    CHECK (resolved_at IS NULL OR state IN ('ambiguous', 'dead'))
) WITH (fillfactor = 70);
-- Claims and capacities look at open rows only; how many terminal ones there are does not matter.
CREATE INDEX bridge_delegations_open ON bridge_delegations (room_id, seq)
    WHERE terminal_at IS NULL;
CREATE INDEX bridge_delegations_notices ON bridge_delegations (seq)
    WHERE notice_pending IS NOT NULL;
CREATE INDEX bridge_delegations_ended ON bridge_delegations (terminal_at)
    WHERE state IN ('delivered', 'denied');
CREATE INDEX bridge_delegations_by_transaction ON bridge_delegations (transaction_id);

CREATE TABLE bridge_delegation_controls (
    seq              bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,
    control_id       text        PRIMARY KEY,
    job_id           text        NOT NULL
        REFERENCES bridge_delegations (job_id) ON DELETE CASCADE,
    kind             text        NOT NULL CHECK (kind IN (
        'cancel', 'continuation', 'question', 'progress', 'pin', 'unpin')),
    source_event     text        NOT NULL DEFAULT '',  -- empty: of the worker
    slot             integer     NOT NULL,
    sender           text        NOT NULL DEFAULT '',
    input_generation integer     NOT NULL,
    fingerprint      bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    state            text        NOT NULL DEFAULT 'pending' CHECK (state IN (
        'pending', 'prepared', 'applied', 'ambiguous', 'denied', 'dead')),
    error_code       text,
    payload          text,  -- content: empty when it has ended
    message_id       text,  -- of the A2A message, or the Matrix transaction
    event_id         text,  -- what the room has of it
    created_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    prepared_at      timestamptz,
    terminal_at      timestamptz,
    UNIQUE (job_id, kind, source_event, slot),
    CHECK ((terminal_at IS NOT NULL) = (state IN ('applied', 'ambiguous', 'denied', 'dead'))),
    CHECK (terminal_at IS NULL OR payload IS NULL)
);
CREATE INDEX bridge_controls_by_job ON bridge_delegation_controls (job_id, seq);

-- Whatever the program does: evidence is written once, and what has ended stays ended.
CREATE FUNCTION bridge_guard_delegation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.primary_event_id IS NOT NULL AND NEW.primary_event_id IS DISTINCT FROM OLD.primary_event_id
        OR OLD.edit_event_id IS NOT NULL AND NEW.edit_event_id IS DISTINCT FROM OLD.edit_event_id
        OR OLD.notice_event_id IS NOT NULL AND NEW.notice_event_id IS DISTINCT FROM OLD.notice_event_id
        OR OLD.part_event_ids IS DISTINCT FROM NEW.part_event_ids[1:cardinality(OLD.part_event_ids)]
    THEN
        RAISE EXCEPTION 'bridge: an event id of job % is written once', OLD.job_id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF OLD.terminal_at IS NOT NULL AND NEW.state IS DISTINCT FROM OLD.state THEN
        RAISE EXCEPTION 'bridge: job % has ended', OLD.job_id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF NEW.generation < OLD.generation OR NEW.attempts < OLD.attempts
        OR NEW.never_left < OLD.never_left OR NEW.seq <> OLD.seq
        OR OLD.task_id IS NOT NULL AND NEW.task_id IS DISTINCT FROM OLD.task_id
        OR NEW.event_id <> OLD.event_id OR NEW.ghost <> OLD.ghost OR NEW.sender <> OLD.sender
    THEN
        RAISE EXCEPTION 'bridge: evidence of job % does not go back', OLD.job_id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER bridge_guard_delegation BEFORE UPDATE ON bridge_delegations
    FOR EACH ROW EXECUTE FUNCTION bridge_guard_delegation();

CREATE FUNCTION bridge_guard_control() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.event_id IS NOT NULL AND NEW.event_id IS DISTINCT FROM OLD.event_id
        OR NEW.fingerprint <> OLD.fingerprint OR NEW.sender <> OLD.sender
        OR NEW.input_generation <> OLD.input_generation
        OR OLD.terminal_at IS NOT NULL AND NEW.state IS DISTINCT FROM OLD.state
    THEN
        RAISE EXCEPTION 'bridge: evidence of control % is written once', OLD.control_id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER bridge_guard_control BEFORE UPDATE ON bridge_delegation_controls
    FOR EACH ROW EXECUTE FUNCTION bridge_guard_control();
