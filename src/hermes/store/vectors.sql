-- name: state
SELECT upto, epoch, made_by FROM vector_state;

-- name: next
SELECT m.id, m.session, m.role, iif(m.role = 'result' OR m.state = 2, x'', m.body)
FROM messages AS m WHERE m.id > (SELECT upto FROM vector_state)
ORDER BY m.id LIMIT 256;

-- name: add
INSERT OR REPLACE INTO vectors (message, part, session, role, body) VALUES (?, ?, ?, ?, ?);

-- name: mark
UPDATE vector_state SET upto = max(upto, :upto);

-- name: forget all
DELETE FROM vectors;

-- name: begin again
UPDATE vector_state SET upto = 0, epoch = epoch + 1, made_by = :made_by;

-- name: load
SELECT v.message, v.part, v.session, v.role, s.principal, v.body
FROM vectors AS v JOIN sessions AS s ON s.n = v.session
WHERE v.message > :after ORDER BY v.message, v.part;

-- name: vector
SELECT body FROM vectors WHERE message = ? AND part = ?;
