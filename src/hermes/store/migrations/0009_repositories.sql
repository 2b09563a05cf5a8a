-- Tables with columns of their own instead of the generic `records`. Rows whose body is not the
-- JSON object they should hold could not be read before, and are left out.

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

DELETE FROM records WHERE kind IN ('question', 'grant', 'yolo', 'process', 'delegation');

DROP VIEW old_records;
