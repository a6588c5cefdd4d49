-- The release of Redisson's plain lock, by its table of effects, without its answer latch, which
-- would make it slower.
--
-- KEYS  lock, channel
-- ARGV  owner
-- Replies  nil if not held, 0 if still held, 1 if released

local lock, channel, owner = KEYS[1], KEYS[2], ARGV[1]
if redis.call('HEXISTS', lock, owner) == 0 then return nil end
if redis.call('HINCRBY', lock, owner, -1) > 0 then return 0 end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, '0')
return 1
