CREATE TABLE stamp (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version int4 NOT NULL,
    system uuid NOT NULL,
    pool uuid NOT NULL
);

CREATE TABLE records (
    slot int2 PRIMARY KEY,
    pool uuid NOT NULL,
    generation int8 NOT NULL,
    transaction int8 NOT NULL,
    seq int8 NOT NULL,
    fences int8 NOT NULL,
    last_id uuid NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE queues (
    queue uuid PRIMARY KEY,
    messages int8 NOT NULL,
    bytes int8 NOT NULL,
    scheduled int8 NOT NULL,
    aside int8 NOT NULL,
    low uuid NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE entries (
    queue uuid NOT NULL,
    aside boolean NOT NULL,
    id uuid NOT NULL,
    slot int2 NOT NULL,
    state int2 NOT NULL,
    created int8 NOT NULL,
    ready int8 NOT NULL,
    expires int8 NOT NULL,
    ttl int4 NOT NULL,
    attempts int4 NOT NULL,
    size int4 NOT NULL,
    client uuid,
    peer bytea,
    body bytea NOT NULL,
    PRIMARY KEY (queue, aside, id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.02,
        toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0);
-- Never compressed: bodies are stored as they came, and a large one is not rewritten with its header.
ALTER TABLE entries ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX entries_schedule ON entries (queue, ready, id) WHERE state = 1;
CREATE INDEX entries_due ON entries (slot, ready, queue, id) WHERE state = 1;
CREATE INDEX entries_expiry ON entries (slot, expires, queue, id) WHERE state NOT IN (2, 3);

CREATE TABLE notes (
    queue uuid NOT NULL,
    kind int2 NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    expires int8 NOT NULL,
    PRIMARY KEY (queue, kind, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
ALTER TABLE notes ALTER COLUMN value SET STORAGE EXTERNAL;
