-- Frees the lock, whoever holds it, and tells everybody who waits.
--
-- KEYS  lock
-- ARGV  expires_us, channel
-- Replies  RELEASED; FREE if there was nothing to break; LATE
-- Changes  lock: deleted

local lock = KEYS[1]

if is_late(ARGV[1]) then return reply(LATE, left_ms(lock)) end
-- HLEN, not EXISTS: what is not a hash is not ours to delete.
if redis.call('HLEN', lock) == 0 then return reply(FREE, -2) end

delete(lock)
return reply(RELEASED, -2, 0, '', tell(ARGV[2]))
