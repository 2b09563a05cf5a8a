-- name: add
INSERT INTO records (kind, id, session, state, at, body, open, holder)
VALUES (:kind, :id, :session, :state, :at, :body, :open, :holder)
ON CONFLICT DO NOTHING;

-- name: put
INSERT INTO records (kind, id, session, state, at, body, open, holder)
VALUES (:kind, :id, :session, :state, :at, :body, :open, :holder)
ON CONFLICT (kind, id) DO UPDATE SET
    session = excluded.session, state = excluded.state, at = excluded.at, body = excluded.body,
    open = excluded.open, holder = excluded.holder;

-- name: change
UPDATE records SET session = :session, state = :state, at = :at, body = :body, open = :open,
    holder = :holder
WHERE kind = :kind AND id = :id AND state = :was;

-- name: get
SELECT kind, id, session, state, at, body, open, holder FROM records
WHERE kind = :kind AND id = :id;

-- name: find
SELECT kind, id, session, state, at, body, open, holder FROM records
WHERE kind = :kind ORDER BY n DESC LIMIT :limit;

-- name: find open
SELECT kind, id, session, state, at, body, open, holder FROM records
WHERE kind = :kind AND open = 1 ORDER BY n DESC LIMIT :limit;

-- name: find of session
SELECT kind, id, session, state, at, body, open, holder FROM records
WHERE session = :session AND kind = :kind ORDER BY n DESC LIMIT :limit;

-- name: find open of session
SELECT kind, id, session, state, at, body, open, holder FROM records
WHERE session = :session AND kind = :kind AND open = 1 ORDER BY n DESC LIMIT :limit;

-- name: matching
SELECT kind, id, session, state, at, body, open, holder FROM records AS m
WHERE kind = :kind AND (:state IS NULL OR state = :state) AND NOT EXISTS (
    SELECT 1 FROM json_each(:fields) AS f
    WHERE json_extract(CAST(m.body AS TEXT), '$.' || f.key) IS NOT f.value)
ORDER BY n DESC LIMIT :limit;

-- name: forget
DELETE FROM records WHERE kind = :kind AND open = 0 AND at < :before;
