-- name: beat
INSERT INTO workers (id, host, pid, started_at, last_seen)
VALUES (:id, :host, :pid, :started_at, :now)
ON CONFLICT (id) DO UPDATE SET last_seen = excluded.last_seen;

-- name: seen
SELECT last_seen FROM workers WHERE id = :id;

-- name: all
SELECT id FROM workers;

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
