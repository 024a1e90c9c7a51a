-- Reads a page. KEYS: entries, headers, bodies, the order. ARGV: command, first bound, last bound, max entries, max
-- bytes of bodies, index of the id in a member, max bytes of headers. Returns whether the page is the last, then id,
-- value and header of each entry.

local from, limit, budget, place = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local answer, count, read, headers_left = {1}, 0, 0, tonumber(ARGV[7])
while true do
  local members = redis.call(ARGV[1], KEYS[4], from, ARGV[3], 'LIMIT', 0, 32)
  if #members == 0 then return answer end
  local ids = {}
  for at, member in ipairs(members) do ids[at] = string.sub(member, place) end
  local values = redis.call('HMGET', KEYS[1], unpack(ids))
  local headers = redis.call('HMGET', KEYS[2], unpack(ids))
  for at, id in ipairs(ids) do
    if count == limit or read > budget or headers_left < 0 then
      answer[1] = 0
      return answer
    end
    count = count + 1
    local value = with_body(KEYS[3], values[at] or '')
    answer[#answer + 1] = id
    answer[#answer + 1] = value
    answer[#answer + 1] = headers[at] or ''
    read = read + math.max(#value - HEAD, 0)
    headers_left = headers_left - #(headers[at] or '')
  end
  from = '(' .. members[#members]
end
