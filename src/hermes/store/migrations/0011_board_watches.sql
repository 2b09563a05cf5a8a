CREATE TABLE board_watches (
    board TEXT NOT NULL,
    task TEXT NOT NULL,
    platform TEXT NOT NULL,
    chat TEXT NOT NULL,
    thread TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    scope BLOB,
    problem TEXT NOT NULL,
    PRIMARY KEY (board, task, platform, chat, thread)
) STRICT, WITHOUT ROWID;
