-- Add an entry to an inbox, once: a marker says that it is there. Markers whose entries are
-- recorded by the producer are removed.
-- KEYS: inbox, sent.  ARGV: fence, 'add' or 'look' (then nothing is added), number of markers to
--   remove, the markers, the entry's marker, its fields and values.
-- Answers {'fenced'}, {'added' or 'known', id of the entry}, or {'absent', ''}.
if redis.call('HGET', KEYS[2], 'fence') ~= ARGV[1] then return {'fenced'} end
local gone = tonumber(ARGV[3])
if gone > 0 then redis.call('HDEL', KEYS[2], unpack(ARGV, 4, 3 + gone)) end
local marker = ARGV[4 + gone]
local id = redis.call('HGET', KEYS[2], marker)
if id then return {'known', id} end
if ARGV[2] ~= 'add' then return {'absent', ''} end
id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 5 + gone))
redis.call('HSET', KEYS[2], marker, id)
return {'added', id}
