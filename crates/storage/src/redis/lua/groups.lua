-- Reads the first entries of groups. KEYS: entries, headers, bodies, groups. ARGV: first bound, max groups. Returns for
-- each id, value, header, and whether it is the only entry of its group.

local from, answer = ARGV[1], {}
for _ = 1, tonumber(ARGV[2]) do
  local places = redis.call('ZRANGEBYLEX', KEYS[4], from, '+', 'LIMIT', 0, 2)
  if #places == 0 then return answer end
  local group, id = string.sub(places[1], 1, -17), string.sub(places[1], -16)
  local is_only = #places == 1 or string.sub(places[2], 1, -17) ~= group
  answer[#answer + 1] = id
  answer[#answer + 1] = with_body(KEYS[3], redis.call('HGET', KEYS[1], id) or '')
  answer[#answer + 1] = redis.call('HGET', KEYS[2], id) or ''
  answer[#answer + 1] = is_only and 1 or 0
  from = '[' .. string.sub(group, 1, -2) .. string.char(1)
end
return answer
