-- Processes that work on this store. `last_seen` is by the store's clock, `started_at` in UTC.
CREATE TABLE workers (
    id         TEXT    PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL
) WITHOUT ROWID;

-- What one worker at a time may do, such as receiving for a channel account. Rows outlive a
-- release, so that a generation is never given twice.
CREATE TABLE claims (
    name       TEXT    PRIMARY KEY,
    worker     TEXT    NOT NULL,
    generation INTEGER NOT NULL
) WITHOUT ROWID;
