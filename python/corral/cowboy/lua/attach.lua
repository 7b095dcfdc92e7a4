-- Take a new fence for this connection and read whose ledger the source belongs to.
-- KEYS: fence, ledger.  ARGV: a number above every fence so far, for a counter that begins anew.
-- Answers {fence, uuid or '', sequence or '', incarnation or ''}.
if redis.call('INCR', KEYS[1]) == 1 then
  -- The keys are new or were lost: 1 is what an old connection may have had.
  redis.call('SET', KEYS[1], ARGV[1])
end
local uuid = redis.call('HGET', KEYS[2], 'uuid')
local sequence = redis.call('HGET', KEYS[2], 'sequence')
local incarnation = redis.call('HGET', KEYS[2], 'incarnation')
-- Not the number that INCR answered: Lua writes a large one with an exponent.
return {redis.call('GET', KEYS[1]), uuid or '', sequence or '', incarnation or ''}
