-- name: words
SELECT rowid, bm25(words, 1.0, 0.0) FROM words WHERE words MATCH :match
ORDER BY rowid DESC LIMIT :limit;

-- name: grams
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM grams JOIN messages AS m ON m.id = grams.rowid JOIN sessions AS s ON s.n = m.session
WHERE grams MATCH :match AND m.state < 2 AND s.source <> 'review'
    AND (:role IS NULL OR m.role = :role)
    AND s.principal = :who
ORDER BY grams.rowid DESC;

-- name: newest
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.state < 2 AND s.source <> 'review' AND (:role IS NULL OR m.role = :role)
    AND s.principal = :who
ORDER BY m.id DESC LIMIT :limit;

-- name: unindexed
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.id > :after AND m.state < 2 AND s.source <> 'review' AND (:role IS NULL OR m.role = :role)
    AND s.principal = :who
ORDER BY m.id DESC;

-- name: message
SELECT m.id, m.seq, m.at, m.role, m.session, m.body
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.id = :id AND m.state < 2 AND s.source <> 'review' AND (:role IS NULL OR m.role = :role)
    AND s.principal = :who;

-- name: session
SELECT s.* FROM whole_sessions AS s WHERE s.n = :n;
