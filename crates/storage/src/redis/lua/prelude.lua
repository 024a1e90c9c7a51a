-- Functions of all scripts. stored.rs has the layout of keys and values.
-- Only text in hex is compared with <, never raw bytes: Redis compares strings by the locale.

local HEAD = 54 -- bytes of a header before its extras and its peer
local SHARED = 8 -- added to the tag of an entry whose value has the id of a body in place of its body
local SHARED_LENGTH = HEAD + 16 -- bytes of such a value
local SPAN = 8000 -- milliseconds of a bucket of many entries that live by queue
local READY, SCHEDULED, PREPARED, MOVING, DONE, FAILED = 0, 1, 2, 3, 5, 6 -- states
local SLOT_KEYS, QUEUE_KEYS = 9, 10 -- numbers of the keys of a slot, and of a queue
local MANY = 4000 -- max arguments of one call; Lua's stack has 8,000 places

local function hex(raw)
  return (string.gsub(raw, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

local function raw(text)
  return (string.gsub(text, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end))
end

-- Returns the smallest and the greatest member of a range of a bucket, in hex.
local function halves(range) return string.sub(range, 1, #range / 2), string.sub(range, #range / 2 + 1) end

-- Reads a big-endian number of `length` bytes. Exact below 2^53, which milliseconds reach in 285,000 years.
local function number(text, from, length)
  local sum = 0
  for at = from, from + length - 1 do sum = sum * 256 + string.byte(text, at) end
  return sum
end

-- Removes a scheduled entry from the schedules of its queue and of its slot.
local function unschedule(keys, queue, id, header)
  local ready = string.sub(header, 3, 10)
  redis.call('ZREM', keys.scheduled, ready .. id)
  redis.call('ZREM', keys.schedule, ready .. queue .. id)
end

-- Returns the set that has an entry with this header among the ready, kept or other ones, and its member there. A ready
-- entry can have no header.
local function place_of(keys, id, header)
  local state = header and string.byte(header, 2) or READY
  if state == READY then return keys.ready, id end
  if state == DONE or state == FAILED then return keys.kept, string.sub(header, 3, 10) .. id end
  return keys.aside, id
end

-- Whether a header has extras, and whether it lives by queue. Tags are 1, plus 1, 2 and 4 for what the header has.
local function has_extras(header) return string.byte(header, 1) % 2 == 0 end
local function is_retained(header) return (string.byte(header, 1) - 1) % 4 >= 2 end

-- Returns the head in the value of an entry, with the tag of a header.
local function head_of(value)
  local tag = string.byte(value, 1) or 0
  if tag <= SHARED then return string.sub(value, 1, HEAD) end
  return string.char(tag - SHARED) .. string.sub(value, 2, HEAD)
end

-- Returns the value of an entry with its body. A value with the id of a body gets that body in place of it, and the tag
-- of a header. If there is no such body, the answer is shorter than a head and not empty, so that a reader takes it for
-- damage.
local function with_body(bodies, value)
  if (string.byte(value, 1) or 0) <= SHARED then return value end
  local body = redis.call('HGET', bodies, string.sub(value, HEAD + 1))
  if not body then return 'no body' end
  return head_of(value) .. body
end

-- Returns the member of an entry with this header in the groups of its queue; nil when it has no group or is kept.
local function group_place(id, header)
  local state = string.byte(header, 2)
  if state == DONE or state == FAILED or not has_extras(header) then return nil end
  local length = string.byte(header, HEAD + 9)
  if length == 0 then return nil end
  return string.sub(header, HEAD + 10, HEAD + 9 + length) .. string.char(0) .. id
end

-- Returns the keys of one queue, which begin at index `at` of KEYS.
local function keys_of(at)
  return {
    schedule = KEYS[3], bodies = KEYS[5], readers = KEYS[6], lent = KEYS[8], lenders = KEYS[9],
    entries = KEYS[at], headers = KEYS[at + 1], ready = KEYS[at + 2], aside = KEYS[at + 3],
    scheduled = KEYS[at + 4], ranges = KEYS[at + 5], notes = KEYS[at + 6], names = KEYS[at + 7],
    groups = KEYS[at + 8], kept = KEYS[at + 9],
  }
end

-- Adds to the bytes of a queue in one of the hashes that count them. Removes the field at zero, and below it: a dropped
-- lender has no field when the bodies that it lent are removed.
local function count_bytes(counts, queue, bytes)
  if bytes ~= 0 and redis.call('HINCRBY', counts, queue, string.format('%.0f', bytes)) <= 0 then
    redis.call('HDEL', counts, queue)
  end
end

-- Removes a body without readers, and its bytes from those of its lender.
local function remove_body(keys, body, bytes)
  local lender = redis.call('HGET', keys.lenders, body)
  if lender then
    count_bytes(keys.lent, lender, -bytes)
    redis.call('HDEL', keys.lenders, body)
  end
  redis.call('HDEL', keys.bodies, body)
end

-- Prepares the removal of an entry. If its value has the id of a body, that body has one reader less, and is removed
-- with the last of them. Returns the bytes of the entry's body, then the same number if the body is shared, or 0. For
-- an absent entry it returns nothing.
local function release_body(keys, id)
  local length = redis.call('HSTRLEN', keys.entries, id)
  if length == 0 then return end
  if length ~= SHARED_LENGTH then return length - HEAD, 0 end
  local value = redis.call('HGET', keys.entries, id)
  if string.byte(value, 1) <= SHARED then return length - HEAD, 0 end
  local body = string.sub(value, HEAD + 1)
  local bytes = redis.call('HSTRLEN', keys.bodies, body)
  local left = redis.call('HINCRBY', keys.readers, body, -1)
  if left <= 0 then redis.call('HDEL', keys.readers, body) end
  -- A body without a count stays: it takes room, and no entry loses it.
  if left == 0 then remove_body(keys, body, bytes) end
  return bytes, bytes
end

-- Removes an existing entry in any state, after `release_body`.
local function remove(keys, queue, id)
  local header = redis.call('HGET', keys.headers, id)
  local set, member = place_of(keys, id, header)
  if header then
    if string.byte(header, 2) == SCHEDULED then unschedule(keys, queue, id, header) end
    local place = group_place(id, header)
    if place then redis.call('ZREM', keys.groups, place) end
    redis.call('HDEL', keys.headers, id)
  end
  redis.call('HDEL', keys.entries, id)
  redis.call('ZREM', set, member)
end
