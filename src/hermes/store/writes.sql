-- name: open
INSERT INTO sessions (id, started_at, source, principal, key, title, model, provider, parent, cwd,
    ended_at, end_reason, effort, personality, last_at, last_seq, messages, tool_calls,
    preview, preview_seq)
VALUES (:id, :started_at, :source, :principal, :key, :title, :model, :provider, :parent, :cwd,
    :ended_at, :end_reason, :effort, :personality, max(:started_at, :at), :count, :count, :calls,
    :preview, iif(:preview <> '', :preview_at, 0));

-- name: number
SELECT n FROM sessions WHERE id = :id;

-- name: prompt
INSERT INTO prompts (session, system) VALUES (:n, :value)
ON CONFLICT (session) DO UPDATE SET system = excluded.system;

-- name: move
UPDATE sessions SET key = :value, last_at = max(last_at, :now) WHERE n = :n;

-- name: set title
UPDATE sessions SET title = :value WHERE n = :n;

-- name: set model
UPDATE sessions SET model = :value WHERE n = :n;

-- name: set provider
UPDATE sessions SET provider = :value WHERE n = :n;

-- name: set cwd
UPDATE sessions SET cwd = :value WHERE n = :n;

-- name: set ended_at
UPDATE sessions SET ended_at = :value WHERE n = :n;

-- name: set end_reason
UPDATE sessions SET end_reason = :value WHERE n = :n;

-- name: set effort
UPDATE sessions SET effort = :value WHERE n = :n;

-- name: set personality
UPDATE sessions SET personality = :value WHERE n = :n;

-- name: tally
UPDATE sessions SET
    last_seq = last_seq + :count,
    messages = messages + :count,
    tool_calls = tool_calls + :calls,
    last_at = max(last_at, :at),
    preview_seq = iif(preview = '' AND :preview <> '', last_seq + :preview_at, preview_seq),
    preview = iif(preview = '', :preview, preview)
WHERE id = :id
RETURNING n, last_seq;

-- name: append
INSERT INTO messages (session, seq, run, role, at, calls, state, body)
VALUES (?, ?, ?, ?, ?, ?, 0, ?);

-- name: unindex words
DELETE FROM words WHERE rowid IN
    (SELECT id FROM messages WHERE session = :n AND seq >= :seq AND state = 0);

-- name: unindex grams
DELETE FROM grams WHERE rowid IN
    (SELECT id FROM messages WHERE session = :n AND seq >= :seq AND state = 0);

-- name: untally
UPDATE sessions SET
    messages = messages - gone.count,
    tool_calls = tool_calls - gone.calls,
    preview = iif(preview_seq >= :seq, '', preview)
FROM (SELECT count(*) AS count, coalesce(sum(calls), 0) AS calls
    FROM messages WHERE session = :n AND seq >= :seq AND state = 0) AS gone
WHERE n = :n;

-- name: hide
UPDATE messages SET state = 2 WHERE session = :n AND seq >= :seq AND state = 0;

-- name: begin
INSERT OR REPLACE INTO intents (session, call, run, tool, effect, at)
VALUES (:n, :call, :run, :tool, :effect, :at);

-- name: settle
DELETE FROM intents
WHERE call = :call AND session = (SELECT n FROM sessions WHERE id = :session);

-- name: meter session
UPDATE sessions SET
    model_calls = model_calls + :calls,
    input = input + :input,
    output = output + :output,
    cache_read = cache_read + :cache_read,
    cache_write = cache_write + :cache_write,
    reasoning = reasoning + :reasoning,
    cost = cost + :cost,
    unpriced = unpriced + :unpriced
WHERE id = :id;

-- name: meter model
INSERT INTO model_usage (session, model, provider, day, calls, input, output, cache_read,
    cache_write, reasoning, cost, unpriced)
SELECT n, :model, :provider, coalesce(:day, date(last_at / 1000000, 'unixepoch')),
    :calls, :input, :output, :cache_read, :cache_write, :reasoning, :cost, :unpriced
FROM sessions WHERE id = :id
ON CONFLICT (session, model, provider, day) DO UPDATE SET
    calls = calls + excluded.calls,
    input = input + excluded.input,
    output = output + excluded.output,
    cache_read = cache_read + excluded.cache_read,
    cache_write = cache_write + excluded.cache_write,
    reasoning = reasoning + excluded.reasoning,
    cost = cost + excluded.cost,
    unpriced = unpriced + excluded.unpriced;

-- name: post
INSERT INTO queue_items (key, queue, topic, body, due, attempts)
VALUES (:key, :queue, :topic, :body, :due, :attempts)
ON CONFLICT (key) DO NOTHING;

-- name: post claimed
INSERT INTO queue_items (key, queue, topic, body, attempts, state, holder, until)
VALUES (:key, :queue, :topic, :body, :attempts, 1, :holder, :until)
ON CONFLICT (key) DO NOTHING;

-- name: post first
-- Only if nothing else of its topic waits.
INSERT INTO queue_items (key, queue, topic, body, attempts, state, holder, until)
SELECT :key, :queue, :topic, :body, :attempts, 1, :holder, :until
WHERE NOT EXISTS
    (SELECT 1 FROM queue_items WHERE queue = :queue AND topic = :topic AND state < 2)
ON CONFLICT (key) DO NOTHING;

-- name: done
-- The holder stays: it may complete the item again, others may not.
UPDATE queue_items SET state = 2, body = x'', until = NULL, settled = :now
WHERE key = :key AND state <> 2;

-- name: drop
UPDATE queue_items SET state = 2, body = x'', until = NULL, settled = :now
WHERE queue = :queue AND state < 2 AND substr(key, 1, length(:prefix)) = :prefix
    AND key NOT IN (SELECT value FROM json_each(:kept));

-- name: amend
UPDATE queue_items SET body = :body WHERE key = :key AND state <> 2;

-- name: held
SELECT EXISTS (SELECT 1 FROM queue_items WHERE key = :key AND state IN (1, 2)
    AND (holder = :worker OR substr(holder, 1, length(:worker) + 1) = :worker || '/'));
