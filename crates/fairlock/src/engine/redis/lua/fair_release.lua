-- Sets the hold count of an owner to a lower value. At zero whatever the owner has here is gone,
-- its hold or its place in the queue, and a free lock goes on to the head of the queue.
--
-- KEYS  lock, record, queue, scores, places
-- ARGV  expires_us, waiter_ttl_ms, channel, client, owner, remaining
-- Replies  RELEASED or NOT_HELD, at a count above zero HELD with the token; grantee if one of the
--          asking client has the lock; LATE
-- Changes  lock: deleted, or written for the next owner, or owner = remaining; record: the grant;
--          queue, scores, places: who goes, their end

local owner, remaining = ARGV[5], tonumber(ARGV[6])

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

-- One look at each key before anything is changed: one of a wrong type is an error then.
local held = redis.call('HEXISTS', lock, owner) == 1
local is_known = redis.call('ZSCORE', scores, owner) or redis.call('HEXISTS', places, owner) == 1
redis.call('LLEN', queue)

if held and remaining > 0 then
  -- A server that is out of memory allows HDEL, and after one write it allows the next.
  redis.call('HDEL', lock, '')
  redis.call('HSET', lock, owner, remaining)
  local token, of = last_grant(record)
  return reply(HELD, redis.call('PTTL', lock), of == owner and token or 0)
end

local holder
if held then
  -- Who has the lock is not in the queue any more.
  redis.call('DEL', lock)
else
  if is_known then remove(owner) end
  holder = holder_of_lock()
end
local passed
if not holder then
  passed = pass_on()
  holder = passed and passed.holder
end
return reply_to(held and RELEASED or NOT_HELD, holder, passed)
