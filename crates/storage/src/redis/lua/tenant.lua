-- Replaces the record of the pool's tenant, if it is the one that the caller has read. KEYS: tenant. ARGV: the record
-- that was read, or nothing; the new record.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
