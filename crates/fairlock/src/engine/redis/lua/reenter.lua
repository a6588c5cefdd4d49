-- Sets the hold count of an owner that holds the lock, and raises its lease. Never takes a lock.
--
-- KEYS  lock, record
-- ARGV  expires_us, owner, count, lease_ms
-- Replies  HELD with the token; NOT_HELD; LATE
-- Changes  lock: owner = count, TTL = the larger of its own and the lease

local lock, record = KEYS[1], KEYS[2]
local owner, count, lease_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end
if redis.call('HEXISTS', lock, owner) == 0 then return reply(NOT_HELD, redis.call('PTTL', lock)) end

if redis.call('PTTL', lock) < lease_ms then redis.call('PEXPIRE', lock, lease_ms) end
-- A server that is out of memory allows HDEL, and after one write it allows the next.
redis.call('HDEL', lock, '')
redis.call('HSET', lock, owner, count)

local token, of = last_grant(record)
return reply(HELD, redis.call('PTTL', lock), of == owner and token or 0)
