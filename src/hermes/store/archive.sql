-- name: get
SELECT s.* FROM whole_sessions AS s WHERE s.id = :id AND s.principal = :who;

-- name: titled
SELECT s.* FROM whole_sessions AS s WHERE s.title = :title AND s.title <> '' AND s.principal = :who
ORDER BY s.principal = 'owner' DESC, s.last_at DESC, s.n DESC LIMIT 1;

-- name: beginning
SELECT s.* FROM whole_sessions AS s
WHERE s.id >= :name AND s.id < :name || char(0x10FFFF) AND s.principal = :who
ORDER BY s.id LIMIT 6;

-- name: latest
SELECT s.* FROM whole_sessions AS s
WHERE iif(:source IS NULL, s.source NOT IN ('review', 'api_task', 'subagent'), s.source = :source) AND s.principal = :who
ORDER BY s.last_at DESC, s.n DESC LIMIT 1;

-- name: by key
SELECT s.* FROM whole_sessions AS s
WHERE s.key = :key AND s.key <> '' AND s.ended_at IS NULL AND s.principal = :who
ORDER BY s.started_at DESC, s.n DESC LIMIT 1;

-- name: active at
SELECT s.last_at FROM sessions AS s WHERE s.id = :id AND s.principal = :who;

-- name: turns
SELECT min(m.at) AS begun FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE s.last_at >= :since AND m.at >= :since AND m.run <> '' AND s.principal = :who
GROUP BY m.run ORDER BY begun;

-- name: list
SELECT s.* FROM whole_sessions AS s
WHERE iif(:source IS NULL,
        s.source <> 'api_task' AND (:reviews OR s.source NOT IN ('review', 'subagent')), s.source = :source)
    AND (:model IS NULL OR s.model = :model)
    AND (:title IS NULL OR s.title LIKE :title ESCAPE '\')
    AND (:cwd IS NULL OR s.cwd = :cwd)
    AND (:parent IS NULL OR s.parent = :parent)
    AND (:started_before IS NULL OR s.started_at < :started_before)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:min_messages IS NULL OR s.messages >= :min_messages)
    AND (:max_messages IS NULL OR s.messages <= :max_messages)
    AND s.principal = :who
ORDER BY s.last_at DESC, s.n DESC LIMIT :limit OFFSET :offset;

-- name: messages
SELECT m.seq, m.at, m.run, m.body FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE s.id = :id AND m.seq > :after AND m.state = 0 AND s.principal = :who
ORDER BY m.seq;

-- name: messages between
SELECT m.seq, m.at, m.run, m.body FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE s.id = :id AND m.seq > :after AND (:before IS NULL OR m.seq < :before) AND m.state = 0
    AND s.principal = :who
ORDER BY m.seq;

-- name: sizes
SELECT m.seq, length(m.body) FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE s.id = :id AND (:before IS NULL OR m.seq < :before) AND m.state = 0 AND s.principal = :who
ORDER BY m.seq DESC LIMIT :most;

-- name: how many before
SELECT count(*) FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE s.id = :id AND m.seq <= :after AND m.state = 0 AND s.principal = :who;

-- name: usage of one
SELECT u.model, u.provider, sum(u.calls), sum(u.input), sum(u.output), sum(u.cache_read),
    sum(u.cache_write), sum(u.reasoning), sum(u.cost), sum(u.unpriced)
FROM model_usage AS u JOIN sessions AS s ON s.n = u.session
WHERE s.id = :id AND (:since IS NULL OR s.last_at >= :since) AND s.principal = :who
GROUP BY u.model, u.provider
ORDER BY u.model, u.provider;

-- name: usage of all
SELECT u.model, u.provider, sum(u.calls), sum(u.input), sum(u.output), sum(u.cache_read),
    sum(u.cache_write), sum(u.reasoning), sum(u.cost), sum(u.unpriced)
FROM model_usage AS u JOIN sessions AS s ON s.n = u.session
WHERE (:since IS NULL OR s.last_at >= :since) AND s.principal = :who
GROUP BY u.model, u.provider
ORDER BY u.model, u.provider;

-- name: usage by day
SELECT u.model, u.provider, u.calls, u.input, u.output, u.cache_read, u.cache_write, u.reasoning,
    u.cost, u.unpriced, u.day, s.id, s.principal, s.source
FROM model_usage AS u JOIN sessions AS s ON s.n = u.session
WHERE u.day >= :since AND s.principal = :who
ORDER BY u.day DESC LIMIT :limit;

-- name: intents
SELECT i.call, s.id, i.run, i.tool, i.effect, i.at
FROM intents AS i JOIN sessions AS s ON s.n = i.session
WHERE s.id = :id
ORDER BY i.at, i.call;

-- name: number
SELECT s.n FROM sessions AS s WHERE s.id = :id AND s.principal = :who;

-- name: unindex words
DELETE FROM words WHERE rowid IN (SELECT id FROM messages WHERE session = :n);

-- name: unindex grams
DELETE FROM grams WHERE rowid IN (SELECT id FROM messages WHERE session = :n);

-- name: keep generation
INSERT INTO leases (session, holder, generation, until)
SELECT '', '', generation, 0 FROM leases WHERE session = :id
ON CONFLICT (session) DO UPDATE SET generation = max(generation, excluded.generation);

-- name: forget lease
DELETE FROM leases WHERE session = :id;

-- name: forget runs
DELETE FROM runs WHERE session = :id;

-- name: forget responses
DELETE FROM responses WHERE session = :id;

-- name: forget questions
DELETE FROM questions WHERE session = :id;

-- name: forget saved approvals
DELETE FROM saved_approvals WHERE session = :id;

-- name: forget yolo
DELETE FROM yolo_sessions WHERE session = :id;

-- name: forget processes
DELETE FROM processes WHERE session = :id;

-- name: forget delegations
DELETE FROM delegations WHERE session = :id;

-- name: forget location
DELETE FROM session_locations WHERE session = :id;

-- name: forget view
DELETE FROM compaction_views WHERE session = :id;

-- name: forget pins
DELETE FROM pins WHERE session = :id;

-- name: forget goal
DELETE FROM goals WHERE session = :id;

-- name: forget failed runs
DELETE FROM failed_runs WHERE session = :id;

-- name: forget partial texts
DELETE FROM partial_texts WHERE session = :id;

-- name: forget runtime sessions
DELETE FROM runtime_sessions WHERE session = :id;

-- name: forget callback
DELETE FROM callbacks WHERE session = :id;

-- name: forget keyed requests
DELETE FROM keyed_requests WHERE session = :id;

-- name: forget proposals
DELETE FROM ledger_proposals WHERE session = :id;

-- name: forget queue items
DELETE FROM queue_items WHERE topic IN (SELECT value FROM json_each(:ids));

-- name: delete
DELETE FROM sessions WHERE n = :n;

-- name: trim index
UPDATE index_state SET upto = min(upto, (SELECT coalesce(max(id), 0) FROM messages));

-- name: trim vectors
UPDATE vector_state SET upto = min(upto, (SELECT coalesce(max(id), 0) FROM messages)),
    epoch = epoch + 1;
