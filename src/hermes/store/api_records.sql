-- name: set callback
INSERT OR REPLACE INTO callbacks (session, url, secret, sealed)
VALUES (:session, :url, :secret, :sealed);

-- name: remove callback
DELETE FROM callbacks WHERE session = :session;

-- name: callback
SELECT url, secret, sealed FROM callbacks WHERE session = :session;

-- name: sessions with callback
SELECT session FROM callbacks ORDER BY n DESC LIMIT :limit;

-- name: add request
INSERT INTO keyed_requests (id, session, state, fingerprint, at, answer, holder)
VALUES (:id, :session, :state, :fingerprint, :at, :answer, :holder)
ON CONFLICT DO NOTHING;

-- name: put request
INSERT INTO keyed_requests (id, session, state, fingerprint, at, answer, holder)
VALUES (:id, :session, :state, :fingerprint, :at, :answer, :holder)
ON CONFLICT (id) DO UPDATE SET session = excluded.session, state = excluded.state,
    fingerprint = excluded.fingerprint, at = excluded.at, answer = excluded.answer,
    holder = excluded.holder;

-- name: change request
UPDATE keyed_requests SET session = :session, state = :state, fingerprint = :fingerprint, at = :at,
    answer = :answer, holder = :holder
WHERE id = :id AND state = :expected;

-- name: request
SELECT id, session, state, fingerprint, at, answer, holder FROM keyed_requests WHERE id = :id;

-- name: begun requests
SELECT id, session, state, fingerprint, at, answer, holder FROM keyed_requests
WHERE state = 'begun' ORDER BY n;

-- name: forget requests
DELETE FROM keyed_requests WHERE state <> 'begun' AND at < :before;
