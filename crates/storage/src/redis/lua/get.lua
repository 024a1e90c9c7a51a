-- Reads entries by id. KEYS: entries, headers, bodies. ARGV: ids. Returns value and header of each, '' and '' if it
-- does not exist.

local answer = {}
for _, id in ipairs(ARGV) do
  local value = redis.call('HGET', KEYS[1], id)
  answer[#answer + 1] = value and with_body(KEYS[3], value) or ''
  answer[#answer + 1] = value and redis.call('HGET', KEYS[2], id) or ''
end
return answer
