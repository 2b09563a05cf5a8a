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

DELETE FROM records WHERE kind IN ('question', 'grant', 'yolo');

DROP VIEW old_records;
