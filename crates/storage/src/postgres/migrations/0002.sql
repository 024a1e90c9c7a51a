ALTER TABLE entries ADD COLUMN grouped text COLLATE "C", ADD COLUMN first_claimed int8;
CREATE INDEX entries_groups ON entries (queue, grouped, id) WHERE grouped IS NOT NULL;
