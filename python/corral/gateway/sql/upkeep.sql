-- name: overdue
SELECT task_id FROM tasks INDEXED BY open_by_age
WHERE state IN ('submitted', 'working', 'input-required')
  AND changed_at_ms <= max(:task_before_ms, :input_before_ms)
  AND changed_at_ms <= CASE state WHEN 'input-required' THEN :input_before_ms ELSE :task_before_ms END
ORDER BY changed_at_ms LIMIT :count;

-- name: mark_read
UPDATE tasks SET read_at_ms = :now_ms
WHERE task_id = :task_id AND read_at_ms IS NULL
  AND state NOT IN ('submitted', 'working', 'input-required');

-- name: to_clear
SELECT id FROM tasks WHERE read_at_ms <= :before_ms AND cleared = 0 LIMIT :count;

-- name: clear_task
UPDATE tasks SET text = '', cleared = 1 WHERE id = :task;

-- name: clear_messages
UPDATE messages SET text = '' WHERE task = :task;

-- Not what the agent still has to get: a cancel outlives its task's end.
-- name: to_forget
SELECT id FROM tasks
WHERE state NOT IN ('submitted', 'working', 'input-required') AND changed_at_ms <= :before_ms
  AND NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.task = tasks.id)
ORDER BY changed_at_ms LIMIT :count;

-- name: forget_late
DELETE FROM late WHERE task = :task;

-- name: forget_messages
DELETE FROM messages WHERE task = :task;

-- name: forget_task
DELETE FROM tasks WHERE id = :task;

-- name: forget_answers
DELETE FROM answers WHERE (agent, outbox_id) IN (
  SELECT agent, outbox_id FROM answers WHERE at_ms <= :before_ms LIMIT :count);

-- At most: row ids only grow, and the oldest go first, so there are few gaps.
-- name: count_all
SELECT coalesce((SELECT max(id) FROM tasks) - (SELECT min(id) FROM tasks) + 1, 0) AS tasks;

-- name: gauge_tasks
SELECT agent, client, state, count(*) AS tasks, min(created_at_ms) AS oldest_ms
FROM tasks INDEXED BY open_tasks
WHERE state IN ('submitted', 'working', 'input-required') GROUP BY agent, client, state;

-- name: gauge_deliveries
SELECT t.agent, count(*) AS deliveries, min(t.changed_at_ms) AS oldest_ms
FROM deliveries d JOIN tasks t ON t.id = d.task GROUP BY t.agent;

-- name: newest_tasks
SELECT task_id, agent, client, context_id, state, generation, created_at_ms, changed_at_ms,
       read_at_ms, cleared
FROM tasks
WHERE (NOT :open_only OR state IN ('submitted', 'working', 'input-required'))
ORDER BY id DESC LIMIT :count;

-- name: shown_task
SELECT DISTINCT t.id, t.task_id, t.agent, t.client, t.context_id, t.state, t.generation,
       t.created_at_ms, t.changed_at_ms, t.read_at_ms, t.cleared
FROM tasks t LEFT JOIN messages m ON m.task = t.id
WHERE t.task_id = :any_id OR m.message_id = :any_id OR t.context_id = :any_id LIMIT :count;

-- name: shown_messages
SELECT role, message_id, at_ms FROM messages WHERE task = :task ORDER BY id;

-- name: shown_deliveries
SELECT kind, taken FROM deliveries WHERE task = :task ORDER BY id;

-- name: shown_late
SELECT state, at_ms FROM late WHERE task = :task ORDER BY id;
