-- Takes the lock if it is free. An owner that holds it already is told so: the request was sent
-- twice, and its count stays as it is.
--
-- KEYS  lock, record
-- ARGV  expires_us, owner, lease_ms, identity
-- Replies  HELD with the token; BUSY; LATE
-- Changes  lock: one field, owner = 1, with the lease as TTL; record: the grant

local lock, record = KEYS[1], KEYS[2]
local owner, lease_ms, identity = ARGV[2], tonumber(ARGV[3]), ARGV[4]

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

if redis.call('HEXISTS', lock, owner) == 1 then
  return reply(HELD, redis.call('PTTL', lock), token_of(record, owner, lease_ms, identity))
end
if redis.call('EXISTS', lock) == 1 then return reply(BUSY, redis.call('PTTL', lock)) end

return reply(HELD, lease_ms, grant(lock, record, owner, lease_ms, identity))
