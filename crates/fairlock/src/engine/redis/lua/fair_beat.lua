-- The heartbeat of one client's waiters of one lock: keeps their places, and gives a free lock to
-- the head of the queue.
--
-- KEYS  lock, record, queue, scores, places
-- ARGV  expires_us, waiter_ttl_ms, channel, client, the owners
-- Replies  BUSY or FREE, with grantee if one of the client has the lock, followed by: HELD, QUEUED
--          or NOT_HELD, for every owner; LATE
-- Changes  lock and record: the grant; queue, scores, places: deadlines, who goes, their end

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

-- One look at each key before anything is changed: one of a wrong type is an error then.
local holder = holder_of_lock()
redis.call('ZCARD', scores)
redis.call('HLEN', places)
redis.call('LLEN', queue)

local states, last = {}, nil
for index = 5, #ARGV do
  local owner, state = ARGV[index], NOT_HELD
  local holds = owner == holder or (holder == '' and redis.call('HEXISTS', lock, owner) == 1)
  local place = not holds and place_of(owner)
  local score = place and score_of(owner)
  if holds then
    state = HELD
  elseif score then
    -- A server that is out of memory allows HDEL, and after one write it allows the next.
    if last == nil then redis.call('HDEL', places, '') end
    last = math.max(last or 0, refresh(owner, place, score))
    state = QUEUED
  end
  states[#states + 1] = state
end
if last then set_end(last) end

local passed
if not holder then
  passed = pass_on()
  holder = passed and passed.holder
  for index, state in ipairs(states) do
    if ARGV[index + 4] == holder then states[index] = HELD end
    -- With nobody in the list, what was left of a place is gone.
    if not passed and state == QUEUED then states[index] = NOT_HELD end
  end
end

local answer = reply_to(holder and BUSY or FREE, holder, passed)
local foreign = holder and holder ~= '' and not is_fairlock(holder)
answer[8] = (foreign or java_waits()) and 1 or 0
for _, state in ipairs(states) do answer[#answer + 1] = state end
return answer
