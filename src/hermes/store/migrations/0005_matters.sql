-- What outlives a turn and has a state; a session may be named before it exists.
CREATE TABLE matters (
    n       INTEGER PRIMARY KEY,
    kind    TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    session TEXT    NOT NULL,
    state   TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    open    INTEGER NOT NULL,
    holder  TEXT    NOT NULL,
    UNIQUE (kind, id)
);

CREATE INDEX matters_session ON matters (session, kind);
CREATE INDEX matters_open ON matters (kind, n) WHERE open = 1;
CREATE INDEX matters_old ON matters (kind, at) WHERE open = 0;
