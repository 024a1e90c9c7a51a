-- Reads the totals of a queue. KEYS: bytes, shared, lent, entries, aside, scheduled, kept. ARGV: queue. Returns the
-- numbers of entries, bytes, scheduled entries, entries aside, kept entries, shared bytes and lent bytes.

local function bytes_in(counts) return tonumber(redis.call('HGET', counts, ARGV[1]) or 0) end

return {
  redis.call('HLEN', KEYS[4]), bytes_in(KEYS[1]),
  redis.call('ZCARD', KEYS[6]), redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[7]),
  bytes_in(KEYS[2]), bytes_in(KEYS[3]),
}
