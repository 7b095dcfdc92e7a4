-- oldest: 1
-- How many transactions were admitted. It changes with each, in one row that is rewritten in place.
CREATE TABLE bridge_intake (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    admissions bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO bridge_intake DEFAULT VALUES;
