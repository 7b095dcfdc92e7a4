-- oldest: 1
-- What an operator has to look at is found without reading all that has ended.
CREATE INDEX bridge_delegations_unresolved ON bridge_delegations (seq)
    WHERE state IN ('ambiguous', 'dead') AND resolved_at IS NULL;
