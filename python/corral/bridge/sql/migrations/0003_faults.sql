-- oldest: 1
-- Failures of this program are counted apart from those of the others, which may be away for long.
ALTER TABLE bridge_delegations
    ADD COLUMN faults integer NOT NULL DEFAULT 0 CHECK (faults >= 0);

-- Who ended what, where the row did not say so.
ALTER TABLE bridge_delegations
    ADD COLUMN canceled_by text,
    ADD COLUMN resolved_by text;
