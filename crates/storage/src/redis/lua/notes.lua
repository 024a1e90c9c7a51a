-- Reads notes in order. KEYS: notes, names. ARGV: first bound, last bound, max notes. Returns name and value of each.

local answer = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  answer[#answer + 1] = name
  answer[#answer + 1] = redis.call('HGET', KEYS[1], name) or ''
end
return answer
