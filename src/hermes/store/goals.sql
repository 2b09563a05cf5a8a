-- name: get
SELECT session, text, scope, created_at, state, revision, subgoals, turns, max_turns, max_cost,
    cost_before, doubts, reason, evidence, wait_pid
FROM goals WHERE session = :session;

-- name: active
SELECT session, text, scope, created_at, state, revision, subgoals, turns, max_turns, max_cost,
    cost_before, doubts, reason, evidence, wait_pid
FROM goals WHERE state = 'active' ORDER BY created_at;

-- name: cost
WITH RECURSIVE tree (n, cost) AS (
    SELECT n, cost FROM sessions WHERE id = :session
    UNION ALL
    SELECT s.n, s.cost FROM sessions AS s JOIN tree AS t ON s.parent = t.n
    WHERE s.source = 'subagent'
)
SELECT coalesce(sum(cost), 0.0) FROM tree;

-- name: add
INSERT INTO goals (session, text, scope, created_at, state, revision, subgoals, turns, max_turns,
    max_cost, cost_before, doubts, reason, evidence, wait_pid)
VALUES (:session, :text, :scope, :created_at, :state, 1, :subgoals, :turns, :max_turns,
    :max_cost, :cost_before, :doubts, :reason, :evidence, :wait_pid)
ON CONFLICT DO NOTHING;

-- name: change
UPDATE goals SET text = :text, scope = :scope, created_at = :created_at, state = :state,
    revision = revision + 1, subgoals = :subgoals, turns = :turns, max_turns = :max_turns,
    max_cost = :max_cost, cost_before = :cost_before, doubts = :doubts, reason = :reason,
    evidence = :evidence, wait_pid = :wait_pid
WHERE session = :session AND revision = :revision AND created_at <= :created_at;

-- name: delete
DELETE FROM goals WHERE session = :session;
