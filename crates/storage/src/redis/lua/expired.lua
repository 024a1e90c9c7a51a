-- Reads the expired entries of a due bucket, and removes or narrows the bucket.
-- KEYS: buckets, entries, headers, ranges, then the sets that have its entries: ready and aside, or kept.
-- ARGV: queue, bucket, its span, the member after which to begin or '', max entries to find, max members to read, max
-- bytes of headers to read.
-- Returns the member after which the next call begins, or '' at the end of the bucket, then id and header of each
-- entry.

local queue, bucket, after = ARGV[1], ARGV[2], ARGV[4]
local limit, budget, bytes_left = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local of_slot = string.sub(bucket, 1, 8) .. queue .. string.sub(bucket, 9)
local range = redis.call('HGET', KEYS[4], bucket)
if not range then
  redis.call('ZREM', KEYS[1], of_slot)
  return {''}
end
local least, greatest = halves(range)
local from = after == '' and '[' .. raw(least) or '(' .. after
local span, ttl = tonumber(ARGV[3]), string.sub(bucket, 9, 12)
-- For entries that live by queue, the end of a bucket has two bytes with the mark and the queue, then a base time.
local of_retained = string.byte(bucket, 1) >= 64
local finish = of_retained and number(bucket, 3, 6) or number(bucket, 1, 8)

local of_many = ttl == string.rep(string.char(0), 4)

-- Whether an entry with this complete header is in the bucket.
local function is_in(id, header)
  local ends = number(header, 11, 8)
  if is_retained(header) ~= of_retained or ends >= finish or ends < finish - span then return false end
  if not of_retained then return string.sub(header, 27, 30) == ttl end
  local in_order = math.floor(number(id, 1, 6) / SPAN) == math.floor(ends / SPAN)
  return in_order == of_many and (of_many or string.sub(id, 14) == string.sub(ttl, 2))
end

-- The members to read in order, in hex, and the last of them if there may be more. A set has ids, or times with ids.
local members, cut = {}, nil
for place = 5, #KEYS do
  local found = redis.call('ZRANGEBYLEX', KEYS[place], from, '[' .. raw(greatest), 'LIMIT', 0, budget)
  if #found == budget then
    local last = hex(found[budget])
    if not cut or last < cut then cut = last end
  end
  for _, member in ipairs(found) do members[#members + 1] = hex(member) end
end
table.sort(members)

local first, last
local answer = {''}
for _, text in ipairs(members) do
  if cut and text > cut then break end
  local member = raw(text)
  local id = string.sub(member, -16)
  local header = redis.call('HGET', KEYS[3], id)
  if not header then header = head_of(redis.call('HGET', KEYS[2], id) or '') end
  if #header >= HEAD and is_in(id, header) then
    first, last = first or text, text
    local state = string.byte(header, 2)
    if state ~= PREPARED and state ~= MOVING then
      answer[#answer + 1] = id
      answer[#answer + 1] = header
      bytes_left = bytes_left - #header
      if #answer > 2 * limit or bytes_left < 0 then
        answer[1] = member
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
    redis.call('HDEL', KEYS[4], bucket)
    redis.call('ZREM', KEYS[1], of_slot)
  elseif low .. high ~= range then
    redis.call('HSET', KEYS[4], bucket, low .. high)
  end
end
return answer
