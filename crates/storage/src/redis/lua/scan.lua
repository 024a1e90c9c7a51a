-- Reads a page. KEYS: entries, headers, the order. ARGV: command, first bound, last bound, max entries, max bytes, index of
-- the id in a member. Returns whether the page is the last, then id, value and header of each entry.

local from, limit, budget, place = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local answer, count, read = {1}, 0, 0
while true do
  local members = redis.call(ARGV[1], KEYS[3], from, ARGV[3], 'LIMIT', 0, 32)
  if #members == 0 then return answer end
  local ids = {}
  for at, member in ipairs(members) do ids[at] = string.sub(member, place) end
  local values = redis.call('HMGET', KEYS[1], unpack(ids))
  local headers = redis.call('HMGET', KEYS[2], unpack(ids))
  for at, id in ipairs(ids) do
    if count == limit or read > budget then
      answer[1] = 0
      return answer
    end
    count = count + 1
    answer[#answer + 1] = id
    answer[#answer + 1] = values[at] or ''
    answer[#answer + 1] = headers[at] or ''
    read = read + math.max(#(values[at] or '') - HEAD, 0)
  end
  from = '(' .. members[#members]
end
