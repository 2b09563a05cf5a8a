-- Up to where the public system's database was imported, and what it looked like then.
CREATE TABLE legacy_import (
    last_session INTEGER NOT NULL,
    last_message INTEGER NOT NULL,
    stamp        TEXT    NOT NULL
);
INSERT INTO legacy_import VALUES (0, 0, '');
