-- What a fair lock of Redisson does, but for its messages. ARGV: `lock`, `try`, `leave` or
-- `unlock`; owner, wait in ms, lease in ms. KEYS: lock, record, queue, scores, places. Prefixed
-- with the virtual clock.

local lock, queue, scores = KEYS[1], KEYS[3], KEYS[4]
local what, owner, wait_ms, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now_ms = math.floor(now_us() / 1000)

local function prune()
  while true do
    local head = redis.call('LINDEX', queue, 0)
    local score = head and redis.call('ZSCORE', scores, head)
    if not score or tonumber(score) > now_ms then return end
    redis.call('ZREM', scores, head)
    redis.call('LPOP', queue)
  end
end

local function acquire(queues)
  local free = redis.call('EXISTS', lock) == 0
  local head = redis.call('LINDEX', queue, 0)
  if free and (not head or head == owner) then
    redis.call('LPOP', queue)
    redis.call('ZREM', scores, owner)
    for _, other in ipairs(redis.call('ZRANGE', scores, 0, -1)) do
      redis.call('ZINCRBY', scores, -wait_ms, other)
    end
    redis.call('HSET', lock, owner, 1)
    redis.call('PEXPIRE', lock, lease_ms)
  elseif redis.call('HEXISTS', lock, owner) == 1 then
    redis.call('HINCRBY', lock, owner, 1)
    redis.call('PEXPIRE', lock, lease_ms)
  elseif queues and not redis.call('ZSCORE', scores, owner) then
    local tail = redis.call('LINDEX', queue, -1)
    local base = tail and tail ~= owner and redis.call('ZSCORE', scores, tail)
    base = tonumber(base or now_ms + redis.call('PTTL', lock))
    redis.call('ZADD', scores, base + wait_ms, owner)
    redis.call('RPUSH', queue, owner)
  end
end

local function leave()
  local behind = false
  for _, entry in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if entry == owner then
      behind = true
    elseif behind and redis.call('ZSCORE', scores, entry) then
      redis.call('ZINCRBY', scores, -wait_ms, entry)
    end
  end
  redis.call('ZREM', scores, owner)
  redis.call('LREM', queue, 0, owner)
end

local function unlock()
  if redis.call('HEXISTS', lock, owner) == 0 then return end
  if redis.call('HINCRBY', lock, owner, -1) > 0 then
    redis.call('PEXPIRE', lock, lease_ms)
  else
    redis.call('DEL', lock)
  end
end

if what == 'leave' then
  leave()
else
  prune()
  if what == 'unlock' then unlock() else acquire(what == 'lock') end
end
return 0
