-- Keeps many holds alive. One that is gone, or whose key is something else by now, does not
-- disturb the others.
--
-- KEYS  lock, record; again for every item
-- ARGV  expires_us; owner, count, lease_ms for every item
-- Replies  LATE, or HELD followed by: HELD or NOT_HELD, lease left in ms, for every item
-- Changes  of each lock that its owner holds: owner = count, TTL = the larger of its own and the
--          lease; record: TTL

if is_late(ARGV[1]) then return reply(LATE, -2) end

local function renew(lock, record, owner, count, lease_ms)
  if redis.pcall('HEXISTS', lock, owner) ~= 1 then return NOT_HELD, -2 end
  if redis.call('PTTL', lock) < lease_ms then redis.call('PEXPIRE', lock, lease_ms) end
  redis.call('PEXPIRE', record, lease_ms + RECORD_MS)
  if redis.call('HGET', lock, owner) ~= count then redis.call('HSET', lock, owner, count) end
  return HELD, redis.call('PTTL', lock)
end

local answer = reply(HELD, -2)
for item = 1, #KEYS / 2 do
  local first = 3 * item - 1
  local state, lease_ms = renew(KEYS[2 * item - 1], KEYS[2 * item], ARGV[first], ARGV[first + 1],
    tonumber(ARGV[first + 2]))
  answer[#answer + 1] = state
  answer[#answer + 1] = lease_ms
end
return answer
