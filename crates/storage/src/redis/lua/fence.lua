-- Fences a slot for a new owner. KEYS: record. ARGV: epoch, tag of its numbering.

local record = redis.call('GET', KEYS[1])
if not record then return {'went back'} end
local epoch = string.sub(record, 1, 24)
if epoch > ARGV[1] then return {'fenced', epoch} end
-- The client repeated a fence that was carried out: later batches may have advanced the number, so it is kept.
local numbering = string.sub(record, 25, 24 + #ARGV[2])
if epoch == ARGV[1] and ARGV[2] ~= '' and numbering == ARGV[2] then
    redis.call('SET', KEYS[1], record)
    return {'done', string.sub(record, 41)}
end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2] .. string.rep('0', 11) .. string.sub(record, 41))
return {'done', string.sub(record, 41)}
