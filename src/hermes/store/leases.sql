-- name: held
SELECT holder, until FROM leases WHERE session = :session;

-- name: holders
SELECT session, holder, until FROM leases WHERE holder <> '' AND session <> '';

-- name: hold
-- The row without a session has the highest generation of any that was deleted.
INSERT INTO leases (session, holder, generation, until) VALUES (:session, :holder,
    1 + coalesce((SELECT generation FROM leases WHERE session = ''), 0), :until)
ON CONFLICT (session) DO UPDATE SET
    holder = excluded.holder, generation = generation + 1, until = excluded.until
WHERE holder IN ('', excluded.holder, :gone) OR until <= :now OR until > :latest
RETURNING generation;

-- name: renew
UPDATE leases SET until = :until
WHERE session = :session AND generation = :generation AND holder <> '';

-- name: fenced
SELECT EXISTS (SELECT 1 FROM leases
    WHERE session = :session AND generation = :generation AND holder <> '');

-- name: release
UPDATE leases SET holder = ''
WHERE session = :session AND generation = :generation AND holder <> '';
