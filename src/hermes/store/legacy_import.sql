-- name: position
SELECT last_session, last_message, stamp FROM legacy_import;

-- name: move position
UPDATE legacy_import SET last_session = max(last_session, :last_session),
    last_message = max(last_message, :last_message);

-- name: set stamp
UPDATE legacy_import SET stamp = :stamp;

-- name: session
SELECT n, last_seq FROM sessions WHERE id = :id;

-- name: is title used
SELECT EXISTS (SELECT 1 FROM sessions WHERE principal = :principal AND title = :title);

-- name: is key used
SELECT EXISTS (SELECT 1 FROM sessions WHERE key = :key AND key <> '' AND ended_at IS NULL);

-- name: set parent
UPDATE sessions SET parent = (SELECT n FROM sessions WHERE id = :parent) WHERE id = :id;

-- name: set compacted
UPDATE messages SET state = 1 WHERE session = ? AND seq = ?;

-- name: last adopted
SELECT coalesce(max(CAST(substr(json_extract(CAST(body AS TEXT), '$.id'), 12) AS INTEGER)), 0)
FROM messages WHERE run = 'adopted';
