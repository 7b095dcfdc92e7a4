-- What is overdue is found without a look at what has ended.
CREATE INDEX open_by_age ON tasks (changed_at_ms)
  WHERE state IN ('submitted', 'working', 'input-required');
