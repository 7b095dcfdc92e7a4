-- The history of a database's migrations, kept by corral.core.database in every database of ours.

-- name: used
-- Is there anything in the file yet?
SELECT 1 FROM sqlite_schema LIMIT 1;

-- name: create
CREATE TABLE corral_migrations (
    number     INTEGER PRIMARY KEY,
    digest     BLOB    NOT NULL,  -- of the text that was applied, by corral.core.ids.digest
    applied_ms INTEGER NOT NULL   -- since 1970
) STRICT;

-- name: applied
SELECT number, digest FROM corral_migrations ORDER BY number;

-- name: record
INSERT INTO corral_migrations (number, digest, applied_ms) VALUES (?, ?, ?);
