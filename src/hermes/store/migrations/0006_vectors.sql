-- What messages mean, as vectors: an index that can be made anew. `role` and `session` are the
-- message's own, so that reading all of them need not look at any message.
CREATE TABLE vectors (
    message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part    INTEGER NOT NULL,
    session INTEGER NOT NULL,
    role    TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (message, part)
) WITHOUT ROWID;

-- Messages up to this id have theirs. The epoch changes whenever an id may be given again.
CREATE TABLE embedded (upto INTEGER NOT NULL, epoch INTEGER NOT NULL, made_by TEXT NOT NULL);
INSERT INTO embedded VALUES (0, 0, '');
