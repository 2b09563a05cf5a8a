-- name: columns
SELECT name FROM pragma_table_info(:table) ORDER BY cid;

-- name: last session
SELECT coalesce(max(rowid), 0) FROM sessions;

-- name: last message
SELECT coalesce(max(id), 0) FROM messages;

-- name: sessions
SELECT * FROM sessions WHERE rowid > :after ORDER BY rowid LIMIT :limit;

-- name: last session of page
SELECT coalesce(max(rowid), 0)
FROM (SELECT rowid FROM sessions WHERE rowid > :after ORDER BY rowid LIMIT :limit);

-- name: named sessions
SELECT * FROM sessions WHERE id IN (SELECT value FROM json_each(:ids));

-- name: messages
SELECT * FROM messages WHERE id > :after ORDER BY id LIMIT :limit;

-- name: last message of page
SELECT coalesce(max(id), 0)
FROM (SELECT id FROM messages WHERE id > :after ORDER BY id LIMIT :limit);

-- name: usage per model
SELECT * FROM session_model_usage WHERE session_id IN (SELECT value FROM json_each(:ids));

-- name: usage per session
SELECT *, id AS session_id FROM sessions WHERE id IN (SELECT value FROM json_each(:ids));
