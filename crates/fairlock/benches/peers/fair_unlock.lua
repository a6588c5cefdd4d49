-- A release by the steps of Redisson's fair lock.
--
-- KEYS  lock, queue, scores
-- ARGV  owner, now_ms, channel of the lock
-- Replies  1 if it was held
-- Changes  as Redisson does

local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local owner, now, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local head = redis.call('LINDEX', queue, 0)
while head do
  local score = redis.call('ZSCORE', scores, head)
  if not score or tonumber(score) > now then break end
  redis.call('ZREM', scores, head)
  redis.call('LPOP', queue)
  head = redis.call('LINDEX', queue, 0)
end

if redis.call('HEXISTS', lock, owner) == 0 then return 0 end
redis.call('DEL', lock)
if head then redis.call('PUBLISH', channel .. ':' .. head, '0') end
return 1
