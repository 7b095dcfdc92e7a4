-- A fence for a new connection of the producer: what an older one still has on its way is refused.
-- KEYS: sent.  ARGV: a number above every fence so far, for a hash that begins anew.
-- Answers the fence.
local last = redis.call('HGET', KEYS[1], 'fence') or '0'
local fence = string.format('%.0f', math.max(tonumber(last) + 1, tonumber(ARGV[1])))
redis.call('HSET', KEYS[1], 'fence', fence)
return fence
