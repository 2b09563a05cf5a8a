-- Usage of models by day (UTC). What was recorded before counts on the day of the last message.
CREATE TABLE daily_usage (
    session     INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    model       TEXT    NOT NULL,
    provider    TEXT    NOT NULL,
    day         TEXT    NOT NULL,
    calls       INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        REAL    NOT NULL,
    unpriced    INTEGER NOT NULL,
    PRIMARY KEY (session, model, provider, day)
) WITHOUT ROWID;
INSERT INTO daily_usage
SELECT u.session, u.model, u.provider, date(s.last_at / 1000000, 'unixepoch'), u.calls, u.input,
    u.output, u.cache_read, u.cache_write, u.reasoning, u.cost, u.unpriced
FROM model_usage AS u JOIN sessions AS s ON s.n = u.session;
DROP TABLE model_usage;
ALTER TABLE daily_usage RENAME TO model_usage;
CREATE INDEX model_usage_by_day ON model_usage (day);
