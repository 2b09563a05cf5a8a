-- What programs come back for. `bytes` adds up the notes; a session may be named before it exists.
CREATE TABLE runs (
    n           INTEGER PRIMARY KEY,
    run         TEXT    NOT NULL UNIQUE,
    session     TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    ended       INTEGER NOT NULL DEFAULT 0,
    holder      TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    last_seq    INTEGER NOT NULL DEFAULT 0,
    last_event  TEXT    NOT NULL DEFAULT '',
    result      BLOB,
    bytes       INTEGER NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX runs_keyed ON runs (principal, key) WHERE key <> '';
CREATE INDEX runs_session ON runs (session);
CREATE INDEX runs_open ON runs (n) WHERE ended = 0;
CREATE INDEX runs_ended ON runs (updated) WHERE ended = 1;

-- One note holds the events `first` to `seq` as a JSON array: a run costs few rows.
CREATE TABLE run_events (
    run   INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    seq   INTEGER NOT NULL,
    first INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    body  BLOB    NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE responses (
    n            INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    principal    TEXT    NOT NULL,
    session      TEXT    NOT NULL,
    created      INTEGER NOT NULL,
    body         BLOB    NOT NULL,
    seq          INTEGER NOT NULL,
    conversation TEXT    NOT NULL,
    instructions TEXT    NOT NULL,
    bytes        INTEGER NOT NULL
);

CREATE INDEX responses_session ON responses (session);
CREATE INDEX responses_named ON responses (principal, conversation, n) WHERE conversation <> '';
CREATE INDEX responses_old ON responses (created);
