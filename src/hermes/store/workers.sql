-- name: beat
INSERT INTO workers (id, host, pid, started_at, last_seen)
VALUES (:id, :host, :pid, :started_at, :now)
ON CONFLICT (id) DO UPDATE SET last_seen = excluded.last_seen;

-- name: seen
SELECT last_seen FROM workers WHERE id = :id;

-- name: all
SELECT id FROM workers;

-- name: list
SELECT w.id, w.host, w.pid, w.started_at, w.last_seen,
    (SELECT coalesce(json_group_array(c.name), '[]') FROM claims AS c WHERE c.worker = w.id),
    (SELECT count(*) FROM leases AS l
        WHERE l.until > :now AND substr(l.holder, 1, length(w.id) + 1) = w.id || '/')
FROM workers AS w ORDER BY w.started_at, w.id;

-- name: forget
DELETE FROM workers WHERE id = :id;

-- name: forget all
DELETE FROM workers WHERE id = ?;

-- name: claimed
SELECT worker, generation FROM claims WHERE name = :name;

-- name: claim
INSERT INTO claims (name, worker, generation) VALUES (:name, :worker, 1)
ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, generation = generation + 1
RETURNING generation;

-- name: release
UPDATE claims SET worker = '' WHERE name = :name AND generation = :generation;
