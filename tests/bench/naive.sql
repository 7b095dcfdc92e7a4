PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE turns (entry TEXT PRIMARY KEY, content BLOB, answer TEXT);
INSERT INTO turns (entry, content) VALUES (?, ?);
UPDATE turns SET content = NULL, answer = ? WHERE entry = ?;
