-- name: all
SELECT revision, checked_at, body, exported FROM cron_jobs ORDER BY n;

-- name: get
SELECT revision, checked_at, body, exported FROM cron_jobs WHERE id = :id;

-- name: due
SELECT revision, checked_at, body, exported FROM cron_jobs
WHERE next_at <= :now ORDER BY next_at LIMIT :limit;

-- name: without instant
SELECT revision, checked_at, body, exported FROM cron_jobs WHERE next_at IS NULL ORDER BY n;

-- name: next due
SELECT next_at FROM cron_jobs WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1;

-- name: ahead
SELECT revision, checked_at, body, exported FROM cron_jobs
WHERE checked_at > :now AND next_at IS NOT NULL ORDER BY checked_at;

-- name: add job
INSERT INTO cron_jobs (id, n, revision, next_at, checked_at, body, exported)
VALUES (:id, (SELECT coalesce(max(n), 0) + 1 FROM cron_jobs), 1, :next_at, :checked_at, :body,
    :exported)
ON CONFLICT DO NOTHING;

-- name: change job
UPDATE cron_jobs SET revision = revision + 1, next_at = :next_at, checked_at = :checked_at,
    body = :body, exported = :exported
WHERE id = :id AND revision = :revision;

-- name: delete job
DELETE FROM cron_jobs WHERE id = :id;

-- name: add fire
INSERT INTO cron_fires (job, at, state, open, due, body)
VALUES (:job, :at, :state, :open, :due, :body)
ON CONFLICT (job, at) DO UPDATE SET state = excluded.state, open = excluded.open,
    due = excluded.due, body = excluded.body
WHERE cron_fires.state = 'missed';

-- name: change fire
UPDATE cron_fires SET state = :state, open = :open, due = :due, body = :body
WHERE job = :job AND at = :at AND state IN (SELECT value FROM json_each(:expected));

-- name: fire
SELECT body FROM cron_fires WHERE job = :job AND at = :at;

-- name: fires
SELECT body FROM cron_fires ORDER BY at DESC LIMIT :limit;

-- name: fires of job
SELECT body FROM cron_fires WHERE job = :job ORDER BY at DESC LIMIT :limit;

-- name: sessions
SELECT CAST(body AS TEXT) ->> 'session' AS session, job FROM cron_fires
WHERE at >= :since AND session <> '';

-- name: next start
SELECT due FROM cron_fires WHERE due IS NOT NULL ORDER BY due LIMIT 1;

-- name: busy
SELECT value FROM json_each(:jobs)
WHERE EXISTS (SELECT 1 FROM cron_fires WHERE job = value AND open = 1);

-- name: open fires
SELECT body FROM cron_fires WHERE job = :job AND open = 1 ORDER BY at;

-- name: forget fires
DELETE FROM cron_fires WHERE job = :job AND open = 0 AND at IN
    (SELECT at FROM cron_fires WHERE job = :job ORDER BY at DESC LIMIT -1 OFFSET :keep);
