-- The history of a database's migrations, kept by corral.core.database in every database of ours.

-- name: used
-- Is there anything in the file yet?
SELECT 1 FROM sqlite_schema LIMIT 1;

-- name: create
CREATE TABLE corral_migrations (
    number     INTEGER PRIMARY KEY,
    digest     BLOB    NOT NULL,  -- of the text that was applied, by corral.core.ids.digest
    applied_ms INTEGER NOT NULL,  -- since 1970
    oldest     INTEGER NOT NULL   -- how many migrations a release must know of to use the schema
) STRICT;

-- name: narrow
-- Is the history of a release that did not say which others may use its schema?
SELECT count(*) > 0 AND sum(name = 'oldest') = 0 FROM pragma_table_info('corral_migrations');

-- name: widen
ALTER TABLE corral_migrations ADD COLUMN oldest INTEGER NOT NULL DEFAULT 0;

-- name: fill
UPDATE corral_migrations SET oldest = number;

-- name: oldest
SELECT max(oldest) FROM corral_migrations WHERE number > ?;

-- name: applied
SELECT number, digest FROM corral_migrations ORDER BY number;

-- name: record
INSERT INTO corral_migrations (number, digest, applied_ms, oldest) VALUES (?, ?, ?, ?);
