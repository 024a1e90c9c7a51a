-- In the order in which all statements lock these tables, so that none is in a deadlock with the migration.
LOCK TABLE entries, queues;
ALTER TABLE queues ADD COLUMN kept int8 NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN extras bytea;
CREATE INDEX entries_aside ON entries (queue, id) WHERE state BETWEEN 1 AND 4;
CREATE INDEX entries_kept ON entries (queue, ready, id) WHERE state IN (5, 6);
DROP INDEX entries_groups;
CREATE INDEX entries_groups ON entries (queue, grouped, id) WHERE grouped IS NOT NULL AND state < 5;
