-- Times are whole microseconds since 1970 in UTC.

CREATE TABLE sessions (
    n           INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    started_at  INTEGER NOT NULL,
    source      TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    title       TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    provider    TEXT    NOT NULL,
    parent      INTEGER REFERENCES sessions (n) ON DELETE SET NULL,
    cwd         TEXT    NOT NULL,
    ended_at    INTEGER,
    end_reason  TEXT    NOT NULL,

    -- What the messages add up to, kept in step by every write.
    last_seq    INTEGER NOT NULL DEFAULT 0,
    last_at     INTEGER NOT NULL,
    messages    INTEGER NOT NULL DEFAULT 0,
    tool_calls  INTEGER NOT NULL DEFAULT 0,
    preview     TEXT    NOT NULL DEFAULT '',
    preview_seq INTEGER NOT NULL DEFAULT 0,
    model_calls INTEGER NOT NULL DEFAULT 0,
    input       INTEGER NOT NULL DEFAULT 0,
    output      INTEGER NOT NULL DEFAULT 0,
    cache_read  INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0,
    reasoning   INTEGER NOT NULL DEFAULT 0,
    cost        REAL    NOT NULL DEFAULT 0,
    unpriced    INTEGER NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX sessions_title ON sessions (principal, title) WHERE title <> '';
CREATE INDEX sessions_named  ON sessions (title) WHERE title <> '';
CREATE INDEX sessions_active ON sessions (last_at);
CREATE INDEX sessions_theirs ON sessions (principal, last_at);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;

-- Apart from `sessions`, whose rows are rewritten with every message and should stay small.
CREATE TABLE prompts (
    session INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
    system  TEXT NOT NULL
);

CREATE VIEW whole_sessions AS
SELECT
    s.id, s.started_at, s.source, s.principal, s.key, s.title, s.model, s.provider, p.system,
    o.id AS parent, s.cwd, s.ended_at, s.end_reason, s.last_at, s.messages, s.tool_calls,
    s.preview, s.model_calls, s.input, s.output, s.cache_read, s.cache_write, s.reasoning,
    s.cost, s.unpriced, s.n
FROM sessions AS s
LEFT JOIN prompts AS p ON p.session = s.n
LEFT JOIN sessions AS o ON o.n = s.parent;

-- state: 0 live; 1 compacted (out of the context, still found); 2 hidden (taken back).
CREATE TABLE messages (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    run     TEXT    NOT NULL,
    role    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    calls   INTEGER NOT NULL,
    state   INTEGER NOT NULL,
    body    BLOB    NOT NULL
);

CREATE UNIQUE INDEX messages_place ON messages (session, seq);

-- Both keep no copy of the text. `tags` holds the role and whose it is.
CREATE VIRTUAL TABLE words USING fts5 (
    text, tags, content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);

CREATE VIRTUAL TABLE grams USING fts5 (
    text, content = '', contentless_delete = 1, detail = none,
    tokenize = "trigram case_sensitive 1"
);

-- Messages up to this id are in both indexes.
CREATE TABLE indexed (upto INTEGER NOT NULL);
INSERT INTO indexed VALUES (0);

CREATE TABLE uses (
    session     INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    model       TEXT    NOT NULL,
    provider    TEXT    NOT NULL,
    calls       INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        REAL    NOT NULL,
    unpriced    INTEGER NOT NULL,
    PRIMARY KEY (session, model, provider)
) WITHOUT ROWID;

CREATE TABLE intents (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    call    TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    tool    TEXT    NOT NULL,
    effect  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (call, session)
) WITHOUT ROWID;

CREATE INDEX intents_open ON intents (session, at);

-- state: 0 pending, 1 claimed, 2 done, 3 parked. A done parcel keeps its key, not its body.
CREATE TABLE parcels (
    n        INTEGER PRIMARY KEY,
    key      TEXT    NOT NULL UNIQUE,
    lane     TEXT    NOT NULL,
    topic    TEXT    NOT NULL,
    body     BLOB    NOT NULL,
    due      INTEGER,
    attempts INTEGER NOT NULL,
    state    INTEGER NOT NULL DEFAULT 0,
    holder   TEXT    NOT NULL DEFAULT '',
    until    INTEGER,
    reason   TEXT    NOT NULL DEFAULT '',
    settled  INTEGER
);

CREATE INDEX parcels_open  ON parcels (lane, n) WHERE state < 2;
CREATE INDEX parcels_topic ON parcels (lane, topic, n) WHERE state < 2;
CREATE INDEX parcels_held  ON parcels (lane, holder) WHERE state = 1;
CREATE INDEX parcels_done  ON parcels (settled) WHERE state = 2;

-- Rows outlive a release, so that a generation is never given twice.
CREATE TABLE leases (
    session    TEXT    PRIMARY KEY,
    holder     TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    until      INTEGER NOT NULL
) WITHOUT ROWID;
