-- What sessions work on over several turns. `scope`, `subgoals` and `evidence` are JSON.
CREATE TABLE goals (
    session     TEXT    PRIMARY KEY,
    text        TEXT    NOT NULL,
    scope       BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    revision    INTEGER NOT NULL,
    subgoals    BLOB    NOT NULL,
    turns       INTEGER NOT NULL,
    max_turns   INTEGER NOT NULL,
    max_cost    REAL,
    cost_before REAL    NOT NULL,
    doubts      INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    evidence    BLOB    NOT NULL,
    wait_pid    INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX goals_active ON goals (created_at) WHERE state = 'active';
