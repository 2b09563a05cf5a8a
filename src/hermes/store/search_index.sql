-- name: newest
SELECT coalesce(max(id), 0) FROM messages;

-- name: upto
SELECT upto FROM index_state;

-- name: behind
SELECT EXISTS (SELECT 1 FROM messages WHERE id > (SELECT upto FROM index_state) AND id <= :goal);

-- name: next
SELECT m.id, m.role, m.state, m.body, s.principal, s.id, m.seq
FROM messages AS m JOIN sessions AS s ON s.n = m.session
WHERE m.id > (SELECT upto FROM index_state)
ORDER BY m.id LIMIT :limit;

-- name: add words
INSERT INTO words (rowid, text, tags) VALUES (?, ?, ?);

-- name: add grams
INSERT INTO grams (rowid, text) VALUES (?, ?);

-- name: mark
UPDATE index_state SET upto = ?;

-- name: merge words
INSERT INTO words (words) VALUES ('optimize');

-- name: merge grams
INSERT INTO grams (grams) VALUES ('optimize');
