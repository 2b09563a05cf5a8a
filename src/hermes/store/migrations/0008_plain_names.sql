-- Names that say what a table holds.
ALTER TABLE parcels RENAME TO queue_items;
ALTER TABLE queue_items RENAME COLUMN lane TO queue;
DROP INDEX parcels_open;
DROP INDEX parcels_topic;
DROP INDEX parcels_held;
DROP INDEX parcels_done;
CREATE INDEX queue_items_open  ON queue_items (queue, n) WHERE state < 2;
CREATE INDEX queue_items_topic ON queue_items (queue, topic, n) WHERE state < 2;
CREATE INDEX queue_items_held  ON queue_items (queue, holder) WHERE state = 1;
CREATE INDEX queue_items_done  ON queue_items (settled) WHERE state = 2;

UPDATE queue_items SET queue = CASE queue
    WHEN 'behind' THEN 'after_commands'
    WHEN 'bubbles' THEN 'progress'
    WHEN 'gone' THEN 'unreachable'
    WHEN 'refused' THEN 'rejected'
    ELSE 'final_edits:' || substr(queue, length('farewells:') + 1) END
WHERE queue IN ('behind', 'bubbles', 'gone', 'refused') OR queue LIKE 'farewells:%';

-- Bodies of messages from chats; those of done items are empty.
UPDATE queue_items SET body = CAST(json_set(CAST(body AS TEXT), '$.type', 'message') AS BLOB)
WHERE state <> 2 AND json_valid(CAST(body AS TEXT))
    AND json_extract(CAST(body AS TEXT), '$.type') = 'letter';

ALTER TABLE matters RENAME TO records;
DROP INDEX matters_session;
DROP INDEX matters_open;
DROP INDEX matters_old;
CREATE INDEX records_session ON records (session, kind);
CREATE INDEX records_open ON records (kind, n) WHERE open = 1;
CREATE INDEX records_old ON records (kind, at) WHERE open = 0;

UPDATE records SET kind = CASE kind WHEN 'place' THEN 'location' ELSE 'remote_session' END
WHERE kind IN ('place', 'far_session');

ALTER TABLE uses RENAME TO model_usage;
ALTER TABLE indexed RENAME TO index_state;
ALTER TABLE embedded RENAME TO vector_state;

-- Up to where the public system's database was imported, and what it looked like then.
CREATE TABLE legacy_import (
    last_session INTEGER NOT NULL,
    last_message INTEGER NOT NULL,
    stamp        TEXT    NOT NULL
);
INSERT INTO legacy_import VALUES (0, 0, '');
