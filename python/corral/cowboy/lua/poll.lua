-- One poll: reclaim what was pending for too long, then read new entries, only for the connection
-- that holds the fence. A blocking XREADGROUP could not be fenced: a dead connection that still
-- blocks would take entries that nobody reads.
-- KEYS: fence, inbox.  ARGV: fence, group, consumer, reclaim_idle_ms, cursor, claim count, count.
-- Answers {'fenced'}, {'gone'} or {'ok', next cursor, claimed entries, deleted ids, new entries}.
local fence = redis.call('GET', KEYS[1])
if fence ~= ARGV[1] then return {fence and 'fenced' or 'gone'} end
local claimed = {ARGV[5], {}, {}}
if tonumber(ARGV[6]) > 0 then
  claimed = redis.call('XAUTOCLAIM', KEYS[2], ARGV[2], ARGV[3], ARGV[4], ARGV[5],
                       'COUNT', ARGV[6])
end
local new = {}
if tonumber(ARGV[7]) > 0 then
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'COUNT', ARGV[7],
                          'STREAMS', KEYS[2], '>')
  if read then new = read[1][2] end
end
return {'ok', claimed[1], claimed[2], claimed[3] or {}, new}
