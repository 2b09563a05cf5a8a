-- name: open
INSERT INTO runs (run, session, principal, created, updated, status, ended, holder, model, key,
    fingerprint)
VALUES (:run, :session, :principal, :created, :updated, :status, :ended, :holder, :model, :key,
    :fingerprint)
ON CONFLICT DO NOTHING;

-- name: withdraw
DELETE FROM runs WHERE run = :run AND ended = 0;

-- name: by key
SELECT run, session, principal, created, updated, status, holder, model, key, fingerprint,
    last_seq, last_event, result
FROM runs WHERE principal = :principal AND key = :key AND key <> '';

-- name: get
SELECT run, session, principal, created, updated, status, holder, model, key, fingerprint,
    last_seq, last_event, result
FROM runs WHERE run = :run;

-- name: unended
SELECT run, session, principal, created, updated, status, holder, model, key, fingerprint,
    last_seq, last_event, result
FROM runs WHERE ended = 0 ORDER BY n;

-- name: open run
SELECT n, last_seq FROM runs WHERE run = :run AND ended = 0;

-- name: update run
UPDATE runs SET
    updated = max(updated, :at), status = coalesce(:status, status), ended = :ended,
    last_seq = max(last_seq, :seq), last_event = iif(:event = '', last_event, :event),
    result = coalesce(:result, result), bytes = bytes + :bytes
WHERE n = :row;

-- name: add events
INSERT INTO run_events (run, seq, first, at, body) VALUES (:row, :seq, :first, :at, :body);

-- name: events
SELECT e.first, e.body FROM run_events AS e JOIN runs AS r ON r.n = e.run
WHERE r.run = :run AND e.seq > :after ORDER BY e.seq LIMIT :limit;

-- name: forget old
DELETE FROM runs WHERE n IN
    (SELECT n FROM runs WHERE ended = 1 AND updated < :before LIMIT 500);

-- name: forget surplus
DELETE FROM runs WHERE n IN (
    SELECT n FROM (
        SELECT n, ended, sum(bytes) OVER (ORDER BY updated DESC, n DESC) AS upto FROM runs
    ) WHERE upto > :most AND ended = 1);

-- name: save response
INSERT INTO responses (id, principal, session, created, body, seq, conversation, instructions,
    bytes)
VALUES (:id, :principal, :session, :created, :body,
    iif(:seq > 0, :seq, coalesce((SELECT last_seq FROM sessions WHERE id = :session), 0)),
    :conversation, :instructions, :bytes)
ON CONFLICT (id) DO UPDATE SET session = excluded.session, body = excluded.body,
    seq = excluded.seq, conversation = excluded.conversation,
    instructions = excluded.instructions, bytes = excluded.bytes
WHERE principal = excluded.principal;

-- name: response
SELECT id, principal, session, created, body, seq, conversation, instructions
FROM responses WHERE id = :id AND principal = :principal;

-- name: latest response
SELECT id, principal, session, created, body, seq, conversation, instructions
FROM responses WHERE principal = :principal AND conversation = :conversation
    AND conversation <> '' ORDER BY n DESC LIMIT 1;

-- name: delete response
DELETE FROM responses WHERE id = :id AND principal = :principal;

-- name: forget old responses
DELETE FROM responses WHERE n IN
    (SELECT n FROM responses WHERE created < :before LIMIT 500);

-- name: forget surplus responses
DELETE FROM responses WHERE n IN (
    SELECT n FROM (SELECT n, sum(bytes) OVER (ORDER BY n DESC) AS upto FROM responses)
    WHERE upto > :most);
