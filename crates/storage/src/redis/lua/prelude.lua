-- Functions of all scripts. stored.rs has the layout of keys and values.
-- Only text in hex is compared with <, never raw bytes: Redis compares strings by the locale.

local HEAD = 54 -- bytes of a header before its extras and its peer
local WITH_EXTRAS, RETAINED, RETAINED_WITH_EXTRAS = 2, 3, 4 -- tags of headers
local SPAN = 8000 -- milliseconds of a bucket of many entries that live by queue
local SCHEDULED, PREPARED, MOVING = 1, 2, 3
local MANY = 4000 -- max arguments of one call; Lua's stack has 8,000 places

local function hex(raw)
  return (string.gsub(raw, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

local function raw(text)
  return (string.gsub(text, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end))
end

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

-- Returns the member of an entry with this header in the groups of its queue; nil when it has no group.
local function group_place(id, header)
  local tag = string.byte(header, 1)
  if tag ~= WITH_EXTRAS and tag ~= RETAINED_WITH_EXTRAS then return nil end
  local length = string.byte(header, HEAD + 9)
  if length == 0 then return nil end
  return string.sub(header, HEAD + 10, HEAD + 9 + length) .. string.char(0) .. id
end

-- Returns the keys of one queue, which begin at index `at` of KEYS.
local function keys_of(at)
  return {
    schedule = KEYS[3], entries = KEYS[at], headers = KEYS[at + 1], ready = KEYS[at + 2], aside = KEYS[at + 3],
    scheduled = KEYS[at + 4], ranges = KEYS[at + 5], notes = KEYS[at + 6], names = KEYS[at + 7],
    groups = KEYS[at + 8],
  }
end

-- Adds to the bytes of a queue, and removes the field at zero.
local function count_bytes(queue, bytes)
  if bytes ~= 0 and redis.call('HINCRBY', KEYS[2], queue, string.format('%.0f', bytes)) == 0 then
    redis.call('HDEL', KEYS[2], queue)
  end
end

-- Removes an existing entry in any state.
local function remove(keys, queue, id)
  local header = redis.call('HGET', keys.headers, id)
  if header then
    if string.byte(header, 2) == SCHEDULED then unschedule(keys, queue, id, header) end
    local place = group_place(id, header)
    if place then redis.call('ZREM', keys.groups, place) end
    redis.call('HDEL', keys.headers, id)
  end
  redis.call('HDEL', keys.entries, id)
  if redis.call('ZREM', keys.ready, id) == 0 then redis.call('ZREM', keys.aside, id) end
end
