-- Applies a batch. KEYS: record, bytes, schedule, buckets, bodies, readers, shared, lent, lenders, then ten keys for
-- each queue.
-- ARGV: epoch, previous number, number, greatest id or '', tag of the numbering or '', the list of new bodies that
-- entries share: id, number of readers, lender, body. Then for each queue: its id, the bytes of its appends, and lists:
-- id and value of appends, ids of the ready appends, id and header of updates, ids of removes, buckets with smallest
-- and greatest member, names of removed notes, name and value of written notes. A list begins with its length.
-- The readers of a new body are all its appends, also those of entries that the batch removes.
-- The record is checked before the first write and written last, because scripts do not roll back.

local record = redis.call('GET', KEYS[1])
if not record then return {'went back'} end
local epoch, tag, seq = string.sub(record, 1, 24), string.sub(record, 25, 29), string.sub(record, 30, 40)
if epoch > ARGV[1] then return {'fenced', epoch} end
if epoch ~= ARGV[1] then return {'went back'} end
-- Another fence of the same epoch began a new numbering.
if ARGV[5] ~= '' and ARGV[5] ~= tag then return {'went back'} end
if seq == ARGV[3] then
  -- Written again, so that a WAIT after this script waits for the record.
  redis.call('SET', KEYS[1], record)
  return {'done'}
end
if seq ~= ARGV[2] then return {seq > ARGV[3] and 'stale' or 'went back'} end

local at = 6

-- Returns the bounds of the next list in ARGV, whose elements have `width` arguments each.
local function list(width)
  local first = at + 1
  at = first + tonumber(ARGV[at]) * width
  return first, at - 1
end

local function call_many(command, key, first, last)
  for from = first, last, MANY do
    redis.call(command, key, unpack(ARGV, from, math.min(from + MANY - 1, last)))
  end
end

local function add_ready(key, first, last)
  for from = first, last, MANY / 2 do
    local members = {}
    for place = from, math.min(from + MANY / 2 - 1, last) do
      members[#members + 1] = 0
      members[#members + 1] = ARGV[place]
    end
    redis.call('ZADD', key, unpack(members))
  end
end

local function update(keys, queue, id, header)
  if redis.call('HEXISTS', keys.entries, id) == 0 then return end
  local old = redis.call('HGET', keys.headers, id)
  if old and string.byte(old, 2) == SCHEDULED then unschedule(keys, queue, id, old) end
  local set_before, member_before = place_of(keys, id, old)
  local set, member = place_of(keys, id, header)
  if set ~= set_before or member ~= member_before then
    redis.call('ZREM', set_before, member_before)
    redis.call('ZADD', set, 0, member)
  end
  if string.byte(header, 2) == SCHEDULED then
    local ready = string.sub(header, 3, 10)
    redis.call('ZADD', keys.scheduled, 0, ready .. id)
    redis.call('ZADD', keys.schedule, 0, ready .. queue .. id)
  end
  local place_before, place = old and group_place(id, old) or nil, group_place(id, header)
  if place ~= place_before then
    if place_before then redis.call('ZREM', keys.groups, place_before) end
    if place then redis.call('ZADD', keys.groups, 0, place) end
  end
  redis.call('HSET', keys.headers, id, header)
end

-- Removes entries, each named once. Returns the bytes of all their bodies, and of their shared bodies.
local function remove_all(keys, queue, first, last)
  local bytes, shared, changed = 0, 0, redis.call('EXISTS', keys.headers) == 1
  for place = first, last do
    local released, of_shared = release_body(keys, ARGV[place])
    if released then
      bytes, shared = bytes + released, shared + of_shared
      if changed then remove(keys, queue, ARGV[place]) end
    end
  end
  if not changed then
    -- No entry has a changed header, so all of them are ready and without a group.
    call_many('HDEL', keys.entries, first, last)
    call_many('ZREM', keys.ready, first, last)
  end
  return bytes, shared
end

local function touch(keys, queue, bucket, least, greatest)
  local range = redis.call('HGET', keys.ranges, bucket)
  if range then
    local low, high = halves(range)
    if low < least then least = low end
    if high > greatest then greatest = high end
  else
    redis.call('ZADD', KEYS[4], 0, string.sub(bucket, 1, 8) .. queue .. string.sub(bucket, 9))
  end
  redis.call('HSET', keys.ranges, bucket, least .. greatest)
end

local function add_notes(keys, first, last)
  for place = first, last, 2 do
    redis.call('HSET', keys.notes, ARGV[place], ARGV[place + 1])
    redis.call('ZADD', keys.names, 0, ARGV[place])
  end
end

-- Bytes of each new body, by its id.
local new_bodies = {}

local function add_bodies(first, last)
  for place = first, last, 4 do
    local id, lender, body = ARGV[place], ARGV[place + 2], ARGV[place + 3]
    redis.call('HSET', KEYS[5], id, body)
    redis.call('HSET', KEYS[6], id, ARGV[place + 1])
    redis.call('HSET', KEYS[9], id, lender)
    count_bytes(KEYS[8], lender, #body)
    new_bodies[id] = #body
  end
end

-- Returns the bytes of the shared bodies of appends. All of them are new bodies.
local function shared_bytes(first, last)
  local bytes = 0
  for place = first + 1, last, 2 do
    local value = ARGV[place]
    if (string.byte(value, 1) or 0) > SHARED then
      bytes = bytes + (new_bodies[string.sub(value, HEAD + 1)] or 0)
    end
  end
  return bytes
end

local first_body, last_body = list(4)
add_bodies(first_body, last_body)
local place = SLOT_KEYS + 1
while at <= #ARGV do
  local keys, queue = keys_of(place), ARGV[at]
  local bytes = tonumber(ARGV[at + 1])
  at, place = at + 2, place + QUEUE_KEYS
  local first, last = list(2)
  local shared = first_body <= last_body and shared_bytes(first, last) or 0
  call_many('HSET', keys.entries, first, last)
  add_ready(keys.ready, list(1))
  first, last = list(2)
  for update_at = first, last, 2 do update(keys, queue, ARGV[update_at], ARGV[update_at + 1]) end
  local removed, removed_shared = remove_all(keys, queue, list(1))
  count_bytes(KEYS[2], queue, bytes - removed)
  count_bytes(KEYS[7], queue, shared - removed_shared)
  first, last = list(3)
  for touched = first, last, 3 do touch(keys, queue, ARGV[touched], ARGV[touched + 1], ARGV[touched + 2]) end
  first, last = list(1)
  call_many('HDEL', keys.notes, first, last)
  call_many('ZREM', keys.names, first, last)
  add_notes(keys, list(2))
end

local greatest = string.sub(record, 41)
if ARGV[4] > greatest then greatest = ARGV[4] end
redis.call('SET', KEYS[1], epoch .. tag .. ARGV[3] .. greatest)
return {'done'}
