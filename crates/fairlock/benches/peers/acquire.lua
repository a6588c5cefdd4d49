-- The acquire of Redisson's plain lock, by its table of effects: a new or known owner is counted
-- up and the lease set; anybody else learns what is left of the lease.
--
-- KEYS  lock
-- ARGV  lease_ms, owner
-- Replies  nil if acquired, else the time left in ms

local lock, lease_ms, owner = KEYS[1], ARGV[1], ARGV[2]
local mine = redis.call('HEXISTS', lock, owner) == 1
if mine or redis.call('EXISTS', lock) == 0 then
  redis.call('HINCRBY', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease_ms)
  return nil
end
return redis.call('PTTL', lock)
