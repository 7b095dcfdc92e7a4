-- The history of the migrations, and who may hold what.

-- name: lock
SELECT pg_advisory_xact_lock(1129272898, 1);

-- name: backend
SELECT pg_backend_pid();

-- name: exists
SELECT to_regclass('bridge_migrations') IS NOT NULL AS history,
       to_regclass('bridge_delegations') IS NOT NULL AS ledger;

-- name: create
CREATE TABLE bridge_migrations (
    number     integer     PRIMARY KEY,
    digest     bytea       NOT NULL,
    oldest     integer     NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT statement_timestamp()
);

-- name: applied
SELECT number, digest, oldest FROM bridge_migrations ORDER BY number;

-- name: record
INSERT INTO bridge_migrations (number, digest, oldest) VALUES ($1, $2, $3);

-- name: probe
-- Whether the database would take a change: false on a standby, or where changes are forbidden.
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off';
