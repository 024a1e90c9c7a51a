-- Removes a part of a queue. KEYS: as for a batch of one queue. ARGV: epoch, queue, max entries and notes.

local record = redis.call('GET', KEYS[1])
if not record then return {'went back'} end
local epoch = string.sub(record, 1, 24)
if epoch > ARGV[1] then return {'fenced', epoch} end
if epoch ~= ARGV[1] then return {'went back'} end

local keys, queue, left = keys_of(SLOT_KEYS + 1), ARGV[2], tonumber(ARGV[3])

-- Returns the first members of a set, up to the rest of the max.
local function next_of(key)
  if left == 0 then return {} end
  local members = redis.call('ZRANGE', key, 0, left - 1)
  left = left - #members
  return members
end

local bytes, shared = 0, 0
for _, key in ipairs({keys.ready, keys.aside, keys.kept}) do
  for _, member in ipairs(next_of(key)) do
    local id = string.sub(member, -16)
    local released, of_shared = release_body(keys, id)
    bytes, shared = bytes + (released or 0), shared + (of_shared or 0)
    remove(keys, queue, id)
  end
end
for _, name in ipairs(next_of(keys.names)) do
  redis.call('HDEL', keys.notes, name)
  redis.call('ZREM', keys.names, name)
end
count_bytes(KEYS[2], queue, -bytes)
count_bytes(KEYS[7], queue, -shared)
if redis.call('EXISTS', keys.ready, keys.aside, keys.kept, keys.names) > 0 then return {'more'} end

for _, bucket in ipairs(redis.call('HKEYS', keys.ranges)) do
  redis.call('ZREM', KEYS[4], string.sub(bucket, 1, 8) .. queue .. string.sub(bucket, 9))
end
redis.call('DEL', keys.entries, keys.headers, keys.scheduled, keys.ranges, keys.notes, keys.groups)
-- Bodies that the queue lends can have readers in other queues: they stay, and count nowhere.
for _, counts in ipairs({KEYS[2], KEYS[7], KEYS[8]}) do redis.call('HDEL', counts, queue) end
return {'done'}
