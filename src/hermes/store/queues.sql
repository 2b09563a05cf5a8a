-- name: holders of any
SELECT DISTINCT holder, until IS NOT NULL FROM queue_items
WHERE queue = :queue AND state = 1 AND (until IS NULL OR (until > :tick AND until <= :latest))
    AND holder <> :worker AND substr(holder, 1, length(:worker) + 1) <> :worker || '/';

-- name: holders of topic
SELECT DISTINCT holder, until IS NOT NULL FROM queue_items
WHERE queue = :queue AND topic = :topic AND state < 2 AND state = 1
    AND (until IS NULL OR (until > :tick AND until <= :latest))
    AND holder <> :worker AND substr(holder, 1, length(:worker) + 1) <> :worker || '/';

-- name: lapse
UPDATE queue_items SET until = :tick
WHERE queue = :queue AND holder = :holder AND state = 1 AND coalesce(until > :tick, 1);

-- name: due in any
SELECT n, key, queue, topic, body, due, attempts + (state = 1) FROM queue_items
WHERE queue = :queue AND state < 2
    AND iif(state = 1, coalesce(until <= :tick OR until > :latest, 0)
        OR until IS NULL
            AND (holder = :worker OR substr(holder, 1, length(:worker) + 1) = :worker || '/'),
        coalesce(due, :now) <= :now)
ORDER BY n LIMIT :limit;

-- name: abandoned in any
SELECT n, key, queue, topic, body, due, attempts + (state = 1) FROM queue_items
WHERE queue = :queue AND state < 2
    AND iif(state = 1, coalesce(until <= :tick OR until > :latest, 0)
        AND holder <> :worker AND substr(holder, 1, length(:worker) + 1) <> :worker || '/',
        coalesce(due, :now) <= :now)
ORDER BY n LIMIT :limit;

-- name: due in topic
SELECT n, key, queue, topic, body, due, attempts + (state = 1) FROM queue_items
WHERE queue = :queue AND topic = :topic AND state < 2
    AND iif(state = 1, :all OR coalesce(until <= :tick OR until > :latest, 0)
        OR until IS NULL
            AND (holder = :worker OR substr(holder, 1, length(:worker) + 1) = :worker || '/'),
        coalesce(due, :now) <= :now)
ORDER BY n LIMIT :limit;

-- name: claim
UPDATE queue_items SET attempts = ?, state = 1, holder = ?, until = ? WHERE n = ?;

-- name: topics
SELECT topic FROM queue_items WHERE queue = :queue AND state < 2 GROUP BY topic ORDER BY min(n);

-- name: known
SELECT count(*) FROM queue_items WHERE key = :key;

-- name: retry
UPDATE queue_items
SET attempts = attempts + 1, state = 0, due = :due, reason = :reason, holder = '', until = NULL
WHERE key = :key AND state <> 2;

-- name: park
UPDATE queue_items SET state = 3, reason = :reason, holder = '', until = NULL
WHERE key = :key AND state <> 2;

-- name: parked
SELECT n, key, queue, topic, body, due, attempts, reason FROM queue_items
WHERE queue = :queue AND state = 3 ORDER BY n LIMIT :limit;

-- name: fate
SELECT state, coalesce(reason, '') FROM queue_items WHERE key = :key;

-- name: forget
DELETE FROM queue_items WHERE n IN
    (SELECT n FROM queue_items WHERE state = 2 AND settled < :before LIMIT 5000);

-- name: waiting
SELECT n, key, queue, topic, body, due, attempts FROM queue_items
WHERE queue = :queue AND state = 0
ORDER BY n LIMIT :limit;

-- name: left
SELECT n, key, queue, topic, body, due, attempts FROM queue_items
WHERE queue = :queue AND state < 2
    AND topic IN (SELECT topic FROM queue_items WHERE queue = :queue AND state = 1)
ORDER BY n LIMIT :limit;

-- name: counts
SELECT queue, sum(state = 0), sum(state = 1), sum(state = 3) FROM queue_items
WHERE state <> 2 GROUP BY queue ORDER BY queue;
