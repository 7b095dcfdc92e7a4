-- One tick's words to Redis, in this order: outbox entries (each once, by its marker), the
-- acknowledgements, the ledger's sequence, markers whose ids are committed.
-- KEYS: fence, ledger, inbox, replies, outbox, dead.
-- ARGV: fence, uuid, sequence, group, then four counted lists:
--   acknowledgements: n, entry ids
--   markers to delete: n, fields
--   effects: n, the field of each
--   and for each effect: 'o' or 'd' (outbox or dead letter), entry id to acknowledge or '', number
--            of strings, strings (the entry's fields and values)
-- Answers {'fenced'} or {'ledger'}, or
--   {'ok', count or '!error' of the acknowledgements, then for each effect: id or '!error',
--    count or '!error' or '' of its own acknowledgement (a repeated one counts as the first did)}
-- The markers are written together, after their entries: the script is one step, for the
-- append-only file too, and a command for each would double what is written there.
local fence = redis.call('GET', KEYS[1])
if fence and fence ~= ARGV[1] then return {'fenced'} end
if not fence or redis.call('HGET', KEYS[2], 'uuid') ~= ARGV[2] then return {'ledger'} end

local group = ARGV[4]
local at = 5

local function answer(reply)
  if type(reply) == 'table' and reply['err'] then return '!' .. reply['err'] end
  return reply
end

local function list()
  local n = tonumber(ARGV[at])
  local first = at + 1
  at = first + n
  return first, n
end

local first_ack, acks = list()
local first_gone, gone = list()
local first_field, effects = list()
local out = {'ok', 0}
local made = {}
for i = 1, effects do
  local target, own_ack, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local first = at + 3
  at = first + n
  local field = ARGV[first_field + i - 1]
  local id = redis.call('HGET', KEYS[4], field)
  local repeated = id
  if not id then
    local stream = KEYS[5]
    if target == 'd' then stream = KEYS[6] end
    id = answer(redis.pcall('XADD', stream, '*', unpack(ARGV, first, first + n - 1)))
    if string.sub(id, 1, 1) ~= '!' then
      made[#made + 1] = field
      made[#made + 1] = id
    end
  end
  local acked = ''
  if own_ack ~= '' and string.sub(id, 1, 1) ~= '!' then
    acked = answer(redis.pcall('XACK', KEYS[3], group, own_ack))
    if repeated and acked == 0 then acked = 1 end
  end
  out[2 * i + 1] = id
  out[2 * i + 2] = acked
end
if #made > 0 then redis.call('HSET', KEYS[4], unpack(made)) end
if acks > 0 then
  out[2] = answer(redis.pcall('XACK', KEYS[3], group, unpack(ARGV, first_ack, first_ack + acks - 1)))
end
local seen = tonumber(redis.call('HGET', KEYS[2], 'sequence') or '0')
if tonumber(ARGV[3]) > seen then
  -- A full server refuses this only when nothing above was done: then there is nothing to record.
  redis.pcall('HSET', KEYS[2], 'sequence', ARGV[3])
end
if gone > 0 then
  redis.call('HDEL', KEYS[4], unpack(ARGV, first_gone, first_gone + gone - 1))
end
return out
