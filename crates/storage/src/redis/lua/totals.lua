-- Reads the totals of a queue. KEYS: bytes, entries, aside, scheduled, kept. ARGV: queue.

return {
  redis.call('HLEN', KEYS[2]), tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0),
  redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[5]),
}
