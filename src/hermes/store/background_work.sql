-- name: add process
INSERT INTO processes (id, command, folder, scope, started, pid, pty, reaching, foreign_input,
    unverified, notify, watch, notices, state, exit_code, meaning, source, ended, output, log,
    session, holder)
VALUES (:id, :command, :folder, :scope, :started, :pid, :pty, :reaching, :foreign,
    :unverified, :notify, :watch, :notices, :state, :exit_code, :meaning, :source, :ended, :output,
    :log, :session, :holder)
ON CONFLICT DO NOTHING;

-- name: change process
UPDATE processes SET command = :command, folder = :folder, scope = :scope, started = :started,
    pid = :pid, pty = :pty, reaching = :reaching, foreign_input = :foreign,
    unverified = :unverified, notify = :notify, watch = :watch, notices = :notices, state = :state,
    exit_code = :exit_code, meaning = :meaning, source = :source, ended = :ended,
    output = :output, log = :log, session = :session
WHERE id = :id AND state = 'running';

-- name: process
SELECT id, command, folder, scope, started, pid, pty, reaching, foreign_input, unverified, notify,
    watch, notices, state, exit_code, meaning, source, ended, output, log
FROM processes WHERE id = :id;

-- name: processes
SELECT id, command, folder, scope, started, pid, pty, reaching, foreign_input, unverified, notify,
    watch, notices, state, exit_code, meaning, source, ended, output, log
FROM processes ORDER BY n DESC LIMIT 1000;

-- name: running processes
SELECT id, command, folder, scope, started, pid, pty, reaching, foreign_input, unverified, notify,
    watch, notices, state, exit_code, meaning, source, ended, output, log, holder
FROM processes WHERE state = 'running' ORDER BY n;

-- name: count running
SELECT count(*) FROM processes WHERE state = 'running' AND (:holder = '' OR holder <> :holder);

-- name: forget processes
DELETE FROM processes WHERE state <> 'running' AND ended < :before;

-- name: add delegation
INSERT INTO delegations (id, scope, tasks, reports, holder, session)
VALUES (:id, :scope, :tasks, :reports, :holder, :session)
ON CONFLICT DO NOTHING;

-- name: change delegation
UPDATE delegations SET reports = :reports, holder = :holder WHERE id = :id;

-- name: close delegation
DELETE FROM delegations WHERE id = :id;

-- name: delegations
SELECT id, scope, tasks, reports, holder, holder FROM delegations ORDER BY n;

-- name: any running
SELECT EXISTS (SELECT 1 FROM processes WHERE state = 'running')
    OR EXISTS (SELECT 1 FROM delegations);
