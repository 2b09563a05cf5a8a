-- name: words
SELECT words.rowid, bm25(words, 1.0, 0.0)
FROM words CROSS JOIN messages AS m ON m.id = words.rowid CROSS JOIN sessions AS s ON s.n = m.session
WHERE words MATCH :match
    AND (:source IS NULL OR s.source = :source)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:started_before IS NULL OR s.started_at < :started_before)
ORDER BY words.rowid DESC LIMIT :limit;

-- name: grams
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM grams JOIN messages AS m ON m.id = grams.rowid JOIN sessions AS s ON s.n = m.session
WHERE grams MATCH :match AND m.state < 2 AND s.source <> 'review'
    AND (:role IS NULL OR m.role = :role)
    AND (:source IS NULL OR s.source = :source)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:started_before IS NULL OR s.started_at < :started_before)
    AND s.principal = :who
ORDER BY grams.rowid DESC;

-- name: newest
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.state < 2 AND s.source <> 'review' AND (:role IS NULL OR m.role = :role)
    AND (:source IS NULL OR s.source = :source)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:started_before IS NULL OR s.started_at < :started_before)
    AND s.principal = :who
ORDER BY m.id DESC LIMIT :limit;

-- name: unindexed
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.id > :after AND m.state < 2 AND s.source <> 'review' AND (:role IS NULL OR m.role = :role)
    AND (:source IS NULL OR s.source = :source)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:started_before IS NULL OR s.started_at < :started_before)
    AND s.principal = :who
ORDER BY m.id DESC;

-- name: message
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.id = :id AND m.state < 2 AND s.source <> 'review' AND (:role IS NULL OR m.role = :role)
    AND (:source IS NULL OR s.source = :source)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:started_before IS NULL OR s.started_at < :started_before)
    AND s.principal = :who;

-- name: session
SELECT s.* FROM whole_sessions AS s WHERE s.n = :n;

-- name: sessions
SELECT s.n FROM sessions AS s
WHERE (:source IS NULL OR s.source = :source)
    AND (:started_after IS NULL OR s.started_at > :started_after)
    AND (:started_before IS NULL OR s.started_at < :started_before);
