-- Tables with columns of their own instead of the generic `records`, and instead of a queue of
-- unreachable chats. Rows whose body is not the JSON they should hold could not be read before,
-- and are left out.

CREATE TABLE questions (
    n           INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session     TEXT    NOT NULL,
    question    BLOB    NOT NULL,
    digest      TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    request     BLOB,
    address     BLOB,
    answer      TEXT    NOT NULL,
    answer_text TEXT    NOT NULL,
    answered_by TEXT    NOT NULL,
    call        TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    deadline    REAL    NOT NULL
);

CREATE INDEX questions_session ON questions (session, n);
CREATE INDEX questions_open ON questions (n) WHERE state = 'open';

CREATE TABLE saved_approvals (
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    tool        TEXT NOT NULL,
    reaching    TEXT NOT NULL,
    argv        BLOB NOT NULL,
    action      TEXT NOT NULL,
    folder      TEXT NOT NULL,
    seal        TEXT NOT NULL,
    session     TEXT NOT NULL,
    asked_by    TEXT NOT NULL,
    answered_by TEXT NOT NULL
);

CREATE TABLE yolo_sessions (session TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE processes (
    n             INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    session       TEXT    NOT NULL,
    holder        TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    command       TEXT    NOT NULL,
    folder        TEXT    NOT NULL,
    scope         BLOB    NOT NULL,
    started       INTEGER NOT NULL,
    ended         INTEGER,
    pid           INTEGER NOT NULL,
    pty           INTEGER NOT NULL,
    reaching      TEXT    NOT NULL,
    foreign_input INTEGER NOT NULL,
    unverified    INTEGER NOT NULL,
    notify        INTEGER NOT NULL,
    watch         BLOB    NOT NULL,
    notices       INTEGER NOT NULL,
    exit_code     INTEGER,
    meaning       TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    output        TEXT    NOT NULL,
    log           TEXT    NOT NULL
);

CREATE INDEX processes_session ON processes (session);
CREATE INDEX processes_running ON processes (n) WHERE state = 'running';

-- Those that are not reported yet.
CREATE TABLE delegations (
    n       INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    holder  TEXT NOT NULL,
    scope   BLOB NOT NULL,
    tasks   BLOB NOT NULL,
    reports BLOB NOT NULL
);

CREATE TABLE session_locations (
    session   TEXT PRIMARY KEY,
    key       TEXT NOT NULL,
    address   BLOB NOT NULL,
    principal TEXT NOT NULL,
    role      TEXT NOT NULL,
    asker     BLOB NOT NULL
) WITHOUT ROWID;

-- `topic` is the address at which the key was first used.
CREATE TABLE session_keys (
    n     INTEGER PRIMARY KEY,
    key   TEXT NOT NULL UNIQUE,
    topic TEXT NOT NULL,
    chat  BLOB NOT NULL
);

CREATE INDEX session_keys_topic ON session_keys (topic, n);

CREATE TABLE question_posts (
    channel  TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    post     TEXT    NOT NULL,
    question TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (channel, chat, post)
) WITHOUT ROWID;

CREATE INDEX question_posts_old ON question_posts (at);

-- Turns that count against the quota of a principal.
CREATE TABLE started_turns (
    message   TEXT    PRIMARY KEY,
    principal TEXT    NOT NULL,
    at        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX started_turns_principal ON started_turns (principal, at);
CREATE INDEX started_turns_old ON started_turns (at);

CREATE TABLE unreachable_chats (
    n      INTEGER PRIMARY KEY,
    topic  TEXT NOT NULL UNIQUE,
    reason TEXT NOT NULL
);

CREATE TABLE compaction_views (
    session TEXT    PRIMARY KEY,
    version INTEGER NOT NULL,
    state   BLOB    NOT NULL
) WITHOUT ROWID;

CREATE TABLE pins (
    n       INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    text    TEXT NOT NULL
);

CREATE INDEX pins_session ON pins (session, n);

CREATE TABLE failed_runs (
    run     TEXT    PRIMARY KEY,
    session TEXT    NOT NULL,
    outcome TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX failed_runs_session ON failed_runs (session, at);
CREATE INDEX failed_runs_old ON failed_runs (at);

CREATE TABLE partial_texts (
    run     TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    text    TEXT NOT NULL,
    holder  TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX partial_texts_session ON partial_texts (session);

-- What had been spent in total before the first request of a day.
CREATE TABLE daily_spend (
    day            TEXT NOT NULL,
    spender        TEXT NOT NULL,
    dollars_before REAL NOT NULL,
    PRIMARY KEY (day, spender)
) WITHOUT ROWID;

CREATE TABLE runtime_sessions (
    runtime TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    session TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    state   BLOB    NOT NULL,
    PRIMARY KEY (runtime, id)
);

CREATE INDEX runtime_sessions_session ON runtime_sessions (session);

CREATE TABLE callbacks (
    n       INTEGER PRIMARY KEY,
    session TEXT NOT NULL UNIQUE,
    url     TEXT NOT NULL,
    secret  TEXT NOT NULL,
    sealed  TEXT NOT NULL
);

-- Requests with an idempotency key; `id` is the digest of the key.
CREATE TABLE keyed_requests (
    n           INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session     TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    answer      BLOB,
    holder      TEXT    NOT NULL
);

CREATE INDEX keyed_requests_session ON keyed_requests (session);
CREATE INDEX keyed_requests_begun ON keyed_requests (n) WHERE state = 'begun';
CREATE INDEX keyed_requests_old ON keyed_requests (at) WHERE state <> 'begun';

CREATE TABLE ledger_changes (
    n       INTEGER PRIMARY KEY,
    id      TEXT    NOT NULL UNIQUE,
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    summary TEXT    NOT NULL,
    author  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    edits   BLOB    NOT NULL,
    origin  BLOB    NOT NULL,
    why     TEXT    NOT NULL,
    undoes  TEXT    NOT NULL,
    state   TEXT    NOT NULL,
    holder  TEXT    NOT NULL
);

CREATE INDEX ledger_changes_applying ON ledger_changes (n) WHERE state = 'applying';

CREATE TABLE ledger_proposals (
    n          INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    summary    TEXT    NOT NULL,
    author     TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    request    BLOB    NOT NULL,
    origin     BLOB    NOT NULL,
    why        TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    decided_at INTEGER
);

CREATE INDEX ledger_proposals_session ON ledger_proposals (session);
CREATE INDEX ledger_proposals_waiting ON ledger_proposals (n) WHERE state = 'waiting';

-- `body` as text, and only of rows that hold a JSON object.
CREATE TEMP VIEW old_records AS
SELECT n, kind, id, session, state, at, open, holder, CAST(body AS TEXT) AS body FROM records
WHERE iif(json_valid(CAST(body AS TEXT)), json_type(CAST(body AS TEXT)), '') = 'object';

INSERT INTO questions (id, session, question, digest, principal, at, state, request, address,
    answer, answer_text, answered_by, call, key, holder, deadline)
SELECT id, session, CAST(body -> '$.question' AS BLOB), coalesce(body ->> '$.digest', ''),
    coalesce(body ->> '$.principal', ''), at, state,
    CAST(nullif(body -> '$.wish', 'null') AS BLOB),
    CAST(nullif(body -> '$.address', 'null') AS BLOB),
    coalesce(body ->> '$.answer', ''), coalesce(body ->> '$.words', ''),
    coalesce(body ->> '$.by', ''), coalesce(body ->> '$.call', ''),
    coalesce(body ->> '$.key', ''), holder, coalesce(body ->> '$.ends', 0.0)
FROM old_records WHERE kind = 'question' AND body -> '$.question' IS NOT NULL ORDER BY n;

INSERT INTO saved_approvals (id, tool, reaching, argv, action, folder, seal, session, asked_by,
    answered_by)
SELECT id, body ->> '$.tool', body ->> '$.reaching',
    CAST(coalesce(body -> '$.argv', '[]') AS BLOB), coalesce(body ->> '$.action', ''),
    coalesce(body ->> '$.folder', ''), coalesce(body ->> '$.seal', ''), session,
    coalesce(body ->> '$.by', ''), coalesce(body ->> '$.answered_by', '')
FROM old_records WHERE kind = 'grant' AND open = 1
    AND body ->> '$.tool' IS NOT NULL AND body ->> '$.reaching' IS NOT NULL ORDER BY n;

INSERT INTO yolo_sessions (session) SELECT id FROM records WHERE kind = 'yolo' AND open = 1;

INSERT INTO processes (id, session, holder, state, command, folder, scope, started, ended, pid, pty,
    reaching, foreign_input, unverified, notify, watch, notices, exit_code, meaning, source, output,
    log)
SELECT id, session, holder, state, coalesce(body ->> '$.command', ''),
    coalesce(body ->> '$.folder', ''), CAST(body -> '$.scope' AS BLOB),
    CAST(coalesce(unixepoch(body ->> '$.started', 'subsec') * 1000000, at) AS INTEGER),
    iif(state = 'running', NULL, at), coalesce(body ->> '$.pid', 0), coalesce(body ->> '$.pty', 0),
    coalesce(body ->> '$.reaching', 'inside'), coalesce(body ->> '$.foreign', 0),
    coalesce(body ->> '$.unverified', 0), coalesce(body ->> '$.notify', 0),
    CAST(coalesce(body -> '$.watch', '[]') AS BLOB), coalesce(body ->> '$.notices', 0),
    body ->> '$.exit_code', coalesce(body ->> '$.meaning', ''), coalesce(body ->> '$.source', ''),
    coalesce(body ->> '$.output', ''), coalesce(body ->> '$.log', '')
FROM old_records WHERE kind = 'process' AND body -> '$.scope' IS NOT NULL ORDER BY n;

INSERT INTO delegations (id, session, holder, scope, tasks, reports)
SELECT id, session, holder, CAST(body -> '$.scope' AS BLOB), CAST(body -> '$.tasks' AS BLOB),
    CAST(body -> '$.reports' AS BLOB)
FROM old_records WHERE kind = 'delegation' AND open = 1 AND body -> '$.scope' IS NOT NULL
    AND body -> '$.tasks' IS NOT NULL AND body -> '$.reports' IS NOT NULL ORDER BY n;

INSERT INTO session_locations (session, key, address, principal, role, asker)
SELECT id, body ->> '$.key', CAST(body -> '$.address' AS BLOB),
    coalesce(body ->> '$.principal', 'owner'), coalesce(body ->> '$.role', 'owner'),
    CAST(coalesce(body -> '$.asker', '{}') AS BLOB)
FROM old_records WHERE kind = 'location' AND body ->> '$.key' IS NOT NULL
    AND body -> '$.address' IS NOT NULL;

INSERT INTO session_keys (key, topic, chat)
SELECT id, session, CAST(body AS BLOB) FROM old_records WHERE kind = 'chat_key' ORDER BY n;

INSERT OR IGNORE INTO question_posts (channel, chat, post, question, at)
SELECT id ->> '$[0]', id ->> '$[1]', id ->> '$[2]', CAST(body AS TEXT) ->> '$', at FROM records
WHERE kind = 'question_post' AND json_valid(id) AND json_valid(CAST(body AS TEXT))
    AND CAST(body AS TEXT) ->> '$' IS NOT NULL AND id ->> '$[2]' IS NOT NULL;

INSERT INTO started_turns (message, principal, at)
SELECT id, session, at FROM records WHERE kind = 'turn_taken';

INSERT INTO unreachable_chats (topic, reason)
SELECT topic, max(reason) FROM queue_items WHERE queue = 'unreachable' AND state = 3
GROUP BY topic ORDER BY min(n);
DELETE FROM queue_items WHERE queue = 'unreachable';

INSERT INTO compaction_views (session, version, state)
SELECT id, CAST(state AS INTEGER), CAST(body AS BLOB) FROM old_records WHERE kind = 'view';

INSERT INTO pins (id, session, text)
SELECT id, session, body ->> '$.text' FROM old_records
WHERE kind = 'pin' AND open = 1 AND body ->> '$.text' IS NOT NULL ORDER BY n;

INSERT INTO failed_runs (run, session, outcome, reason, at)
SELECT id, session, state, iif(json_valid(CAST(body AS TEXT)),
    coalesce(CAST(body AS TEXT) ->> '$', ''), ''), at
FROM records WHERE kind = 'run_end';

INSERT INTO daily_spend (day, spender, dollars_before)
SELECT substr(id, 1, 10), substr(id, 12), body ->> '$.dollars' FROM old_records
WHERE kind = 'spent_before' AND body ->> '$.dollars' IS NOT NULL;

INSERT INTO runtime_sessions (runtime, id, session, at, state)
SELECT iif(kind = 'codex_thread', 'codex', 'proxy'), id, session, at, CAST(body AS BLOB)
FROM old_records WHERE kind IN ('codex_thread', 'remote_session') ORDER BY n;

INSERT INTO callbacks (session, url, secret, sealed)
SELECT id, body ->> '$.url', coalesce(body ->> '$.secret', ''), coalesce(body ->> '$.sealed', '')
FROM old_records WHERE kind = 'api_callback' AND open = 1 AND body ->> '$.url' IS NOT NULL
ORDER BY n;

INSERT INTO keyed_requests (id, session, state, fingerprint, at, answer, holder)
SELECT id, session, state, coalesce(body ->> '$.print', ''), at,
    CAST(nullif(body -> '$.finished', 'null') AS BLOB), holder
FROM old_records WHERE kind = 'api_reply' ORDER BY n;

INSERT INTO ledger_changes (id, kind, name, summary, author, at, edits, origin, why, undoes, state,
    holder)
SELECT id, body ->> '$.kind', body ->> '$.name', coalesce(body ->> '$.summary', ''),
    body ->> '$.by', at, CAST(coalesce(body -> '$.edits', '[]') AS BLOB),
    CAST(coalesce(body -> '$.origin', '{}') AS BLOB), coalesce(body ->> '$.why', ''),
    coalesce(body ->> '$.undoes', ''), state, holder
FROM old_records WHERE kind = 'change' AND body ->> '$.kind' IS NOT NULL
    AND body ->> '$.name' IS NOT NULL AND body ->> '$.by' IS NOT NULL ORDER BY n;

INSERT INTO ledger_proposals (id, kind, name, summary, author, at, request, origin, why, session,
    state, decided_at)
SELECT id, body ->> '$.kind', body ->> '$.name', coalesce(body ->> '$.summary', ''),
    body ->> '$.by',
    CAST(coalesce(unixepoch(body ->> '$.at', 'subsec') * 1000000, at) AS INTEGER),
    CAST(coalesce(body -> '$.request', 'null') AS BLOB),
    CAST(coalesce(body -> '$.origin', '{}') AS BLOB), coalesce(body ->> '$.why', ''), session,
    state, iif(state = 'waiting', NULL, at)
FROM old_records WHERE kind = 'proposal' AND body ->> '$.kind' IS NOT NULL
    AND body ->> '$.name' IS NOT NULL AND body ->> '$.by' IS NOT NULL ORDER BY n;

DROP VIEW old_records;
DROP TABLE records;

-- Fields of stored messages; those of done items are gone.
UPDATE queue_items SET body = CAST(json_remove(json_set(CAST(body AS TEXT), '$.progress_post',
    json(CAST(body AS TEXT) -> '$.bubble')), '$.bubble') AS BLOB)
WHERE state <> 2 AND queue LIKE 'outbox:%'
    AND iif(json_valid(CAST(body AS TEXT)), json_type(CAST(body AS TEXT), '$.bubble'), NULL)
        IS NOT NULL;

UPDATE queue_items SET body = CAST(json_remove(json_set(CAST(body AS TEXT), '$.separate',
    json(CAST(body AS TEXT) -> '$.apart')), '$.apart') AS BLOB)
WHERE state <> 2 AND queue LIKE 'outbox:%'
    AND iif(json_valid(CAST(body AS TEXT)), json_type(CAST(body AS TEXT), '$.apart'), NULL)
        IS NOT NULL;

UPDATE queue_items SET body = CAST(json_remove(json_set(CAST(body AS TEXT), '$.may_repeat',
    json(CAST(body AS TEXT) -> '$.doubt')), '$.doubt') AS BLOB)
WHERE state <> 2 AND queue LIKE 'outbox:%'
    AND iif(json_valid(CAST(body AS TEXT)), json_type(CAST(body AS TEXT), '$.doubt'), NULL)
        IS NOT NULL;

UPDATE queue_items SET body = CAST(json_remove(json_set(CAST(body AS TEXT), '$.cross_post',
    json(CAST(body AS TEXT) -> '$.brought')), '$.brought') AS BLOB)
WHERE state <> 2 AND queue LIKE 'outbox:%'
    AND iif(json_valid(CAST(body AS TEXT)), json_type(CAST(body AS TEXT), '$.brought'), NULL)
        IS NOT NULL;

UPDATE queue_items SET body = CAST(json_remove(json_set(CAST(body AS TEXT), '$.text',
    json(CAST(body AS TEXT) -> '$.words')), '$.words') AS BLOB)
WHERE state <> 2 AND (queue = 'progress' OR queue LIKE 'final_edits:%')
    AND iif(json_valid(CAST(body AS TEXT)), json_type(CAST(body AS TEXT), '$.words'), NULL)
        IS NOT NULL;

UPDATE queue_items SET key = replace(key, ':bubble', ':progress')
WHERE queue = 'progress' AND key LIKE '%:bubble%';
