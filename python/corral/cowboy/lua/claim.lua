-- Record whose ledger the source belongs to, unless the fence or the former owner has changed.
-- KEYS: fence, ledger.  ARGV: fence, expected uuid or '', uuid, sequence, incarnation.
-- Answers 'ok', 'fenced' or 'changed'.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'fenced' end
if (redis.call('HGET', KEYS[2], 'uuid') or '') ~= ARGV[2] then return 'changed' end
redis.call('HSET', KEYS[2], 'uuid', ARGV[3], 'sequence', ARGV[4], 'incarnation', ARGV[5])
return 'ok'
