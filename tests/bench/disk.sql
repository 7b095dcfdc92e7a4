PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE probe (id INTEGER PRIMARY KEY, data BLOB);
INSERT INTO probe (data) VALUES (zeroblob(256))
