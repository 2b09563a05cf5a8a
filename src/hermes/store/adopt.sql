-- name: append
INSERT INTO messages (session, seq, run, role, at, calls, state, body)
VALUES (?, ?, 'adopted', ?, ?, ?, ?, ?);

-- name: tally
UPDATE sessions SET
    last_seq = :last_seq, last_at = max(last_at, :last_at), messages = :messages,
    tool_calls = :tool_calls, preview = :preview, preview_seq = :preview_seq
WHERE n = :n;

-- name: parent
UPDATE sessions SET parent = (SELECT n FROM sessions WHERE id = :parent) WHERE id = :id;

-- name: use
INSERT INTO uses (session, model, provider, calls, input, output, cache_read, cache_write,
    reasoning, cost, unpriced)
SELECT n, :model, :provider, :calls, :input, :output, :cache_read, :cache_write,
    :reasoning, :cost, :unpriced
FROM sessions WHERE id = :id
ON CONFLICT (session, model, provider) DO UPDATE SET
    calls = calls + excluded.calls,
    input = input + excluded.input,
    output = output + excluded.output,
    cache_read = cache_read + excluded.cache_read,
    cache_write = cache_write + excluded.cache_write,
    reasoning = reasoning + excluded.reasoning,
    cost = cost + excluded.cost,
    unpriced = unpriced + excluded.unpriced;

-- name: add up uses
UPDATE sessions SET
    model_calls = u.calls, input = u.input, output = u.output, cache_read = u.cache_read,
    cache_write = u.cache_write, reasoning = u.reasoning, cost = u.cost, unpriced = u.unpriced
FROM (
    SELECT session, sum(calls) AS calls, sum(input) AS input, sum(output) AS output,
        sum(cache_read) AS cache_read, sum(cache_write) AS cache_write,
        sum(reasoning) AS reasoning, sum(cost) AS cost, sum(unpriced) AS unpriced
    FROM uses GROUP BY session) AS u
WHERE u.session = sessions.n;

-- name: count of sessions
SELECT count(*) FROM sessions;

-- name: count of messages
SELECT count(*) FROM messages;

-- name: fold journal
PRAGMA wal_checkpoint(TRUNCATE);
