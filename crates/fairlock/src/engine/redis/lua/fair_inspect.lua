-- Tells who holds the lock and who waits for it.
--
-- KEYS  lock, record, queue, scores, places
-- ARGV  expires_us, waiter_ttl_ms, channel, client
-- Replies  BUSY or FREE, followed by: the fields and values of the lock's hash, the record, the
--          queue as owner, score in ms, ticket in us, deadline in us of each, -1 for what it does
--          not have; LATE
-- Changes  nothing

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

local fields = redis.call('HGETALL', lock)
local answer = reply(#fields > 0 and BUSY or FREE, redis.call('PTTL', lock))
answer[#answer + 1] = fields
local grant = redis.pcall('GET', record)
answer[#answer + 1] = type(grant) == 'string' and grant or ''

local waiters = {}
for _, owner in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  local place = place_of(owner) or { ticket = -1, deadline = -1 }
  waiters[#waiters + 1] = owner
  waiters[#waiters + 1] = score_of(owner) or -1
  waiters[#waiters + 1] = place.ticket
  waiters[#waiters + 1] = place.deadline
end
answer[#answer + 1] = waiters
return answer
