-- name: add
INSERT INTO questions (id, session, question, digest, principal, at, state, request, address,
    answer, answer_text, answered_by, call, key, holder, deadline)
VALUES (:id, :session, :question, :digest, :principal, :at, :state, :request, :address,
    :answer, :answer_text, :answered_by, :call, :key, :holder, :deadline)
ON CONFLICT DO NOTHING;

-- name: change
UPDATE questions SET question = :question, digest = :digest, principal = :principal, at = :at,
    state = :state, request = :request, address = :address, answer = :answer,
    answer_text = :answer_text, answered_by = :answered_by, call = :call, key = :key,
    holder = :holder, deadline = :deadline
WHERE id = :id AND state = :expected;

-- name: question
SELECT question, digest, principal, at, state, request, address, answer, answer_text, answered_by,
    call, key, holder, deadline
FROM questions WHERE id = :id;

-- name: questions of session
SELECT question, digest, principal, at, state, request, address, answer, answer_text, answered_by,
    call, key, holder, deadline
FROM questions WHERE session = :session ORDER BY n DESC LIMIT :limit;

-- name: open questions
SELECT question, digest, principal, at, state, request, address, answer, answer_text, answered_by,
    call, key, holder, deadline
FROM questions WHERE state = 'open' AND (:session IS NULL OR session = :session) ORDER BY n;

-- name: forget
DELETE FROM questions WHERE state <> 'open' AND at < :before;

-- name: save
INSERT INTO saved_approvals (id, tool, reaching, argv, action, folder, seal, session, asked_by,
    answered_by)
VALUES (:id, :tool, :reaching, :argv, :action, :folder, :seal, :session, :asked_by, :answered_by);

-- name: revoke
DELETE FROM saved_approvals WHERE id = :id;

-- name: saved
SELECT id, tool, reaching, argv, action, folder, seal, session, asked_by, answered_by
FROM saved_approvals ORDER BY n;

-- name: yolo on
INSERT INTO yolo_sessions (session) VALUES (:session) ON CONFLICT DO NOTHING;

-- name: yolo off
DELETE FROM yolo_sessions WHERE session = :session;

-- name: yolo
SELECT count(*) FROM yolo_sessions WHERE session = :session;
