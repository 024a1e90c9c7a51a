-- In the order in which all statements lock these tables, so that none is in a deadlock with the migration.
LOCK TABLE entries, queues;
-- An entry has a body of its own, or the id of one that it shares. Statements of earlier programs write own bodies.
ALTER TABLE entries ADD COLUMN shared uuid, ALTER COLUMN body DROP NOT NULL;
ALTER TABLE queues ADD COLUMN shared int8 NOT NULL DEFAULT 0, ADD COLUMN lent int8 NOT NULL DEFAULT 0;
-- Pages have room for the next counts of their rows, so that no index changes with a count. No stored lender or body is
-- null: only the inserts are, by whose conflicts statements count.
CREATE TABLE bodies (
    id uuid PRIMARY KEY,
    readers int4 NOT NULL,
    lender uuid,
    body bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.02,
        toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE bodies ALTER COLUMN body SET STORAGE EXTERNAL;
