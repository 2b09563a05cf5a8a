-- name: append
INSERT INTO messages (session, seq, run, role, at, calls, state, body)
VALUES (?, ?, 'adopted', ?, ?, ?, ?, ?);

-- name: tally
UPDATE sessions SET
    last_seq = :last_seq, last_at = max(last_at, :last_at), messages = :messages,
    tool_calls = :tool_calls, preview = :preview, preview_seq = :preview_seq
WHERE n = :n;

-- name: parent
UPDATE sessions SET parent = (SELECT n FROM sessions WHERE id = :parent) WHERE id = :id;

-- name: count of sessions
SELECT count(*) FROM sessions;

-- name: count of messages
SELECT count(*) FROM messages;

-- name: fold journal
PRAGMA wal_checkpoint(TRUNCATE);
