-- Take a new fence for this connection and read whose ledger the source belongs to.
-- KEYS: fence, ledger.  Answers {fence, uuid or '', sequence or '', incarnation or ''}.
local fence = redis.call('INCR', KEYS[1])
local uuid = redis.call('HGET', KEYS[2], 'uuid')
local sequence = redis.call('HGET', KEYS[2], 'sequence')
local incarnation = redis.call('HGET', KEYS[2], 'incarnation')
return {tostring(fence), uuid or '', sequence or '', incarnation or ''}
