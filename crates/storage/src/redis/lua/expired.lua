-- Reads the expired entries of a due bucket, and removes or narrows the bucket.
-- KEYS: buckets, entries, headers, ready, aside, ranges.
-- ARGV: queue, bucket, its span, the id after which to begin or '', max entries to find, max ids to read.
-- Returns the id after which the next call begins, or '' at the end of the bucket, then id and header of each entry.

local queue, bucket, after = ARGV[1], ARGV[2], ARGV[4]
local limit, budget = tonumber(ARGV[5]), tonumber(ARGV[6])
local member = string.sub(bucket, 1, 8) .. queue .. string.sub(bucket, 9)
local range = redis.call('HGET', KEYS[6], bucket)
if not range then
  redis.call('ZREM', KEYS[1], member)
  return {''}
end
local least, greatest = string.sub(range, 1, 32), string.sub(range, 33)
local from = after == '' and '[' .. raw(least) or '(' .. after
local span, ttl = tonumber(ARGV[3]), string.sub(bucket, 9)
-- For entries that live by queue, the end of a bucket has two bytes with the mark and the queue, then a base time.
local of_retained = string.byte(bucket, 1) >= 64
local finish = of_retained and number(bucket, 3, 6) or number(bucket, 1, 8)

local of_many = ttl == string.rep(string.char(0), 4)

-- Whether an entry with this complete header is in the bucket.
local function is_in(id, header)
  local tag, ends = string.byte(header, 1), number(header, 11, 8)
  local is_retained = tag == RETAINED or tag == RETAINED_WITH_EXTRAS
  if is_retained ~= of_retained or ends >= finish or ends < finish - span then return false end
  if not of_retained then return string.sub(header, 27, 30) == ttl end
  local in_order = math.floor(number(id, 1, 6) / SPAN) == math.floor(ends / SPAN)
  return in_order == of_many and (of_many or string.sub(id, 14) == string.sub(ttl, 2))
end

-- The ids to read in order, and the last of them if there may be more.
local ids, cut = {}, nil
for place = 4, 5 do
  local found = redis.call('ZRANGEBYLEX', KEYS[place], from, '[' .. raw(greatest), 'LIMIT', 0, budget)
  if #found == budget then
    local last = hex(found[budget])
    if not cut or last < cut then cut = last end
  end
  for _, id in ipairs(found) do ids[#ids + 1] = hex(id) end
end
table.sort(ids)

local first, last
local answer = {''}
for _, text in ipairs(ids) do
  if cut and text > cut then break end
  local id = raw(text)
  local header = redis.call('HGET', KEYS[3], id)
  if not header then header = string.sub(redis.call('HGET', KEYS[2], id) or '', 1, HEAD) end
  if #header >= HEAD and is_in(id, header) then
    first, last = first or text, text
    local state = string.byte(header, 2)
    if state ~= PREPARED and state ~= MOVING then
      answer[#answer + 1] = id
      answer[#answer + 1] = header
      if #answer > 2 * limit then
        answer[1] = id
        return answer
      end
    end
  end
end
if cut then answer[1] = raw(cut) end
if after == '' then
  -- A read from the begin of the bucket can narrow its range to the entries that exist.
  local low, high = first or cut, cut and greatest or last
  if not low then
    redis.call('HDEL', KEYS[6], bucket)
    redis.call('ZREM', KEYS[1], member)
  elseif low .. high ~= range then
    redis.call('HSET', KEYS[6], bucket, low .. high)
  end
end
return answer
