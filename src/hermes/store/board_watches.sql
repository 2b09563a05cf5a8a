-- name: put
INSERT INTO board_watches (board, task, platform, chat, thread, cursor, scope, problem)
VALUES (:board, :task, :platform, :chat, :thread, :cursor, :scope, :problem)
ON CONFLICT (board, task, platform, chat, thread) DO UPDATE SET
    cursor = max(cursor, excluded.cursor), scope = coalesce(excluded.scope, scope),
    problem = excluded.problem;

-- name: remove
DELETE FROM board_watches WHERE board = :board AND task = :task AND platform = :platform
    AND chat = :chat AND thread = :thread;

-- name: of board
SELECT board, task, platform, chat, thread, cursor, scope, problem
FROM board_watches WHERE board = :board;
