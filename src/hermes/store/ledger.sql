-- name: add change
INSERT INTO ledger_changes (id, kind, name, summary, author, at, edits, origin, why, undoes, state,
    holder)
VALUES (:id, :kind, :name, :summary, :by, :at, :edits, :origin, :why, :undoes, :state, :holder)
ON CONFLICT DO NOTHING;

-- name: change
UPDATE ledger_changes SET state = :state, holder = :holder WHERE id = :id AND state = :expected;

-- name: changes
SELECT id, kind, name, summary, author, at, edits, origin, why, undoes, state FROM ledger_changes
WHERE (:kind IS NULL OR kind = :kind) AND (:state IS NULL OR state = :state)
ORDER BY n DESC LIMIT :limit;

-- name: applying
SELECT id, kind, name, summary, author, at, edits, origin, why, undoes, holder FROM ledger_changes
WHERE state = 'applying' ORDER BY n;

-- name: forget changes
DELETE FROM ledger_changes WHERE state <> 'applying' AND at < :before;

-- name: add proposal
INSERT INTO ledger_proposals (id, kind, name, summary, author, at, request, origin, why, session,
    state)
VALUES (:id, :kind, :name, :summary, :by, :at, :request, :origin, :why, :session, 'waiting')
ON CONFLICT DO NOTHING;

-- name: decide
UPDATE ledger_proposals SET state = :state, decided_at = :at WHERE id = :id AND state = 'waiting';

-- name: proposals
SELECT id, kind, name, summary, author, at, request, origin, why FROM ledger_proposals
WHERE (:kind IS NULL OR kind = :kind) AND (:by IS NULL OR author = :by)
    AND (:state IS NULL OR state = :state)
ORDER BY n DESC LIMIT :limit;

-- name: forget proposals
DELETE FROM ledger_proposals WHERE state <> 'waiting' AND decided_at < :before;
