-- Scheduled jobs. `body` is the job as JSON, `exported` the same as last seen in cron/jobs.json,
-- `next_at` its next fire, computed at `checked_at`.
CREATE TABLE cron_jobs (
    id         TEXT    PRIMARY KEY,
    n          INTEGER NOT NULL,
    revision   INTEGER NOT NULL,
    next_at    INTEGER,
    checked_at INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    exported   BLOB    NOT NULL
) WITHOUT ROWID;
CREATE INDEX cron_jobs_due ON cron_jobs (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX cron_jobs_checked ON cron_jobs (checked_at) WHERE next_at IS NOT NULL;

-- Every fire of a job once, by its scheduled instant; `due` while it waits for its start.
CREATE TABLE cron_fires (
    job   TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    state TEXT    NOT NULL,
    open  INTEGER NOT NULL,
    due   INTEGER,
    body  BLOB    NOT NULL,
    PRIMARY KEY (job, at)
) WITHOUT ROWID;
CREATE INDEX cron_fires_at ON cron_fires (at);
CREATE INDEX cron_fires_due ON cron_fires (due) WHERE due IS NOT NULL;
CREATE INDEX cron_fires_open ON cron_fires (job, at) WHERE open = 1;
