-- Sets the hold count of an owner to a lower value. At zero the lock is free: it goes on to the
-- next owner if one is named, and nobody is told, or everybody who waits is told.
--
-- KEYS  lock, record
-- ARGV  expires_us, owner, remaining, channel, next owner or '', its lease_ms, its identity
-- Replies  RELEASED or NOT_HELD, at a count above zero HELD; grantee and token if the next owner
--          has the lock now; LATE
-- Changes  lock: deleted, or written for the next owner, or owner = remaining; record: the grant

local lock, record = KEYS[1], KEYS[2]
local owner, remaining, channel = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local next_owner, next_lease_ms, next_identity = ARGV[5], tonumber(ARGV[6]), ARGV[7]

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

local held = redis.call('HEXISTS', lock, owner) == 1

if held and remaining > 0 then
  -- A server that is out of memory allows HDEL, and after one write it allows the next.
  redis.call('HDEL', lock, '')
  redis.call('HSET', lock, owner, remaining)
  local token, of = last_grant(record)
  return reply(HELD, redis.call('PTTL', lock), of == owner and token or 0)
end

if held then redis.call('DEL', lock) end

if next_owner == '' then
  if held then return reply(RELEASED, -2, 0, '', tell(channel, '0')) end
  return reply(NOT_HELD, redis.call('PTTL', lock))
end

local state = held and RELEASED or NOT_HELD
if held or redis.call('EXISTS', lock) == 0 then
  local token = grant(lock, record, next_owner, next_lease_ms, next_identity)
  return reply(state, next_lease_ms, token, next_owner)
end
if redis.call('HEXISTS', lock, next_owner) == 1 then
  local token = token_of(record, next_owner, next_lease_ms, next_identity)
  return reply(state, redis.call('PTTL', lock), token, next_owner)
end
return reply(state, redis.call('PTTL', lock))
