-- name: columns
SELECT name FROM pragma_table_info(:table) ORDER BY cid;

-- name: sessions
SELECT * FROM sessions ORDER BY started_at, rowid;

-- name: orphans
SELECT session_id, min(timestamp) FROM messages
WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id;

-- name: messages
SELECT * FROM messages WHERE session_id = :id ORDER BY id;

-- name: session_model_usage
SELECT * FROM session_model_usage;

-- name: totals
SELECT *, id AS session_id FROM sessions;

-- name: count of messages
SELECT count(*) FROM messages;

-- name: fold journal
PRAGMA journal_mode = DELETE;
