-- What readiness asks of the database.

-- name: probe
-- Whether it would take a write now.
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off';
