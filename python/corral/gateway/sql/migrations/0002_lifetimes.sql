-- When a client first got the end of a task, and whether the task's content is still there.
ALTER TABLE tasks ADD COLUMN read_at_ms INTEGER;
ALTER TABLE tasks ADD COLUMN cleared INTEGER NOT NULL DEFAULT 0 CHECK (cleared IN (0, 1));

CREATE INDEX ended_tasks ON tasks (changed_at_ms)
  WHERE state NOT IN ('submitted', 'working', 'input-required');
CREATE INDEX tasks_to_clear ON tasks (read_at_ms) WHERE read_at_ms IS NOT NULL AND cleared = 0;
CREATE INDEX deliveries_of_task ON deliveries (task);
CREATE INDEX late_of_task ON late (task);
CREATE INDEX answers_by_age ON answers (at_ms);
