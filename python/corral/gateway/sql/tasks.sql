-- name: message_of
SELECT m.fingerprint, t.task_id FROM messages m JOIN tasks t ON t.id = m.task
WHERE m.client = :client AND m.message_id = :message_id AND m.role = 'user';

-- name: count_open
SELECT count(*) AS open FROM tasks
WHERE client = :client AND state IN ('submitted', 'working', 'input-required');

-- Row ids only grow, and the oldest go first: most of the time this looks at two rows.
-- name: is_full
SELECT CASE
  WHEN (SELECT max(id) FROM tasks) - (SELECT min(id) FROM tasks) + 1 < :tasks_max THEN 0
  ELSE (SELECT count(*) FROM tasks) >= :tasks_max
END AS full;

-- name: task
SELECT * FROM tasks WHERE task_id = :task_id;

-- name: messages
SELECT message_id, role, text, at_ms FROM messages WHERE task = :task ORDER BY id;

-- name: insert_task
INSERT INTO tasks (task_id, agent, client, context_id, state, generation, text,
                   created_at_ms, changed_at_ms)
VALUES (:task_id, :agent, :client, :context_id, 'submitted', 1, '', :now_ms, :now_ms);

-- name: insert_message
INSERT INTO messages (task, client, role, message_id, fingerprint, text, user, traceparent, at_ms)
VALUES (:task, :client, :role, :message_id, :fingerprint, :text, :user, :traceparent, :now_ms);

-- name: insert_delivery
INSERT INTO deliveries (task, kind, message) VALUES (:task, :kind, :message);

-- name: move
UPDATE tasks SET state = :to, generation = generation + 1, text = :text, changed_at_ms = :now_ms
WHERE id = :task AND state = :from AND generation = :generation;

-- name: insert_late
INSERT INTO late (task, state, at_ms) VALUES (:task, :state, :now_ms);

-- name: deliveries
SELECT d.id, d.kind, t.task_id, m.message_id, m.text, m.user, m.traceparent
FROM deliveries d JOIN tasks t ON t.id = d.task LEFT JOIN messages m ON m.id = d.message
WHERE t.agent = :agent ORDER BY d.id LIMIT :count;

-- name: taken
SELECT t.client, t.task_id, m.message_id
FROM deliveries d JOIN tasks t ON t.id = d.task LEFT JOIN messages m ON m.id = d.message
WHERE t.agent = :agent AND d.taken = 1;

-- name: newest_message
SELECT message_id FROM messages WHERE task = :task AND role = 'user' ORDER BY id DESC LIMIT 1;

-- name: insert_answer
INSERT INTO answers (agent, outbox_id, at_ms) VALUES (:agent, :outbox_id, :now_ms)
ON CONFLICT DO NOTHING;

-- name: delete_delivery
DELETE FROM deliveries WHERE id = :delivery;

-- name: take_delivery
UPDATE deliveries SET taken = 1 WHERE id = :delivery;

-- name: delete_untaken
DELETE FROM deliveries WHERE task = :task AND kind = 'message' AND taken = 0;

-- The newest first; `before` is the row id of the page's token.
-- name: list_tasks
SELECT * FROM tasks
WHERE client = :client AND agent = :agent AND id < :before
  AND (:context_id IS NULL OR context_id = :context_id)
  AND (:state IS NULL OR state = :state)
  AND changed_at_ms >= :since_ms
ORDER BY id DESC LIMIT :count;

-- name: count_tasks
SELECT count(*) AS total FROM tasks
WHERE client = :client AND agent = :agent
  AND (:context_id IS NULL OR context_id = :context_id)
  AND (:state IS NULL OR state = :state)
  AND changed_at_ms >= :since_ms;
