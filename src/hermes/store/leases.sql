-- name: held
SELECT holder, until FROM leases WHERE session = :session;

-- name: hold
INSERT INTO leases (session, holder, generation, until) VALUES (:session, :holder, 1, :until)
ON CONFLICT (session) DO UPDATE SET
    holder = excluded.holder, generation = generation + 1, until = excluded.until
RETURNING generation;

-- name: renew
UPDATE leases SET until = :until
WHERE session = :session AND generation = :generation AND holder <> '';

-- name: release
UPDATE leases SET holder = ''
WHERE session = :session AND generation = :generation;
