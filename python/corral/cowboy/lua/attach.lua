-- Read whose ledger the source belongs to and, unless that is another one or has seen a later
-- commit, take a new fence for this connection.
-- KEYS: fence, ledger.  ARGV: a number above every fence so far, for a counter that begins anew;
--   own uuid, own sequence, '1' to take the fence whosever the source is.
-- Answers {fence or '', uuid or '', sequence or '', incarnation or ''}.
local uuid = redis.call('HGET', KEYS[2], 'uuid')
local sequence = redis.call('HGET', KEYS[2], 'sequence')
local incarnation = redis.call('HGET', KEYS[2], 'incarnation')
local foreign = uuid and (uuid ~= ARGV[2] or tonumber(sequence or '0') > tonumber(ARGV[3]))
local fence = ''
-- Who may not serve the source does not cut off who does.
if not foreign or ARGV[4] == '1' then
  if redis.call('INCR', KEYS[1]) == 1 then
    -- The keys are new or were lost: 1 is what an old connection may have had.
    redis.call('SET', KEYS[1], ARGV[1])
  end
  -- Not the number that INCR answered: Lua writes a large one with an exponent.
  fence = redis.call('GET', KEYS[1])
end
return {fence, uuid or '', sequence or '', incarnation or ''}
