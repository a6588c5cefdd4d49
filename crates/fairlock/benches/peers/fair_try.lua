-- A queueing attempt by the steps of Redisson's fair lock.
--
-- KEYS  lock, queue, scores
-- ARGV  lease_ms, owner, wait_ms, now_ms
-- Replies  nothing if acquired, else how long to wait in ms
-- Changes  as Redisson does

local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local lease, owner, wait, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local head = redis.call('LINDEX', queue, 0)
while head do
  local score = redis.call('ZSCORE', scores, head)
  if not score or tonumber(score) > now then break end
  redis.call('ZREM', scores, head)
  redis.call('LPOP', queue)
  head = redis.call('LINDEX', queue, 0)
end

if redis.call('EXISTS', lock) == 0 and (not head or head == owner) then
  redis.call('LPOP', queue)
  redis.call('ZREM', scores, owner)
  for _, other in ipairs(redis.call('ZRANGE', scores, 0, -1)) do
    redis.call('ZINCRBY', scores, -wait, other)
  end
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  return nil
end

if redis.call('ZSCORE', scores, owner) then return math.max(0, redis.call('PTTL', lock)) end

local tail = redis.call('LINDEX', queue, -1)
local tail_score = tail and redis.call('ZSCORE', scores, tail)
local base = tail_score and tonumber(tail_score) or now + redis.call('PTTL', lock)
if redis.call('ZADD', scores, base + wait, owner) == 1 then redis.call('RPUSH', queue, owner) end
return base - now
