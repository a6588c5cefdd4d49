-- Takes the lock if it is this owner's turn, or queues for it. Asking again is harmless: a holder
-- is told so, a waiter keeps its place. Also a free lock that is not for the asker goes on to the
-- head of the queue.
--
-- KEYS  lock, record, queue, scores, places
-- ARGV  expires_us, waiter_ttl_ms, channel, client, owner, lease_ms, identity,
--       ticket: '' does not queue, 'first' queues at the end, a number comes back with the ticket
--       of its first time and goes before the first fairlock waiter with a later one
-- Replies  HELD with the token; QUEUED, with the length of the queue as position if it was not
--          queued before; BUSY; grantee if one of the asking client has the lock; LATE
-- Changes  lock and record: the grant; queue, scores, places: who comes, who goes, their end

local owner, lease_ms, identity, ticket = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]

-- The owner at whose place one with this ticket belongs.
local function first_after(ticket_us)
  local from, step = 0, 100
  while true do
    local entries = redis.call('LRANGE', queue, from, from + step - 1)
    if #entries == 0 then return nil end
    for _, entry in ipairs(entries) do
      local place = is_fairlock(entry) and place_of(entry)
      if place and place.ticket > ticket_us then return entry end
    end
    from = from + step
  end
end

-- Returns how many are in the queue now.
local function enqueue()
  local ticket_us = tonumber(ticket)
  -- What is left of an earlier life of this entry.
  local comes_back = ticket_us or redis.call('HEXISTS', places, owner) == 1 or score_of(owner)
  if comes_back then remove(owner) end
  local before = ticket_us and first_after(ticket_us)
  local waits_ms = next_waits_ms()
  local score = now_ms + LEAST_MARGIN_MS + waits_ms
  local length
  if before then
    length = redis.call('LINSERT', queue, 'BEFORE', before, owner)
  else
    length = redis.call('RPUSH', queue, owner)
  end
  redis.call('ZADD', scores, score, owner)
  local deadline = now + waiter_ttl_ms * 1000
  write_place(owner, ticket_us or now, deadline, lease_ms, waits_ms, identity)
  set_end(score, comes_back)
  return length
end

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

-- One look at each key before anything is changed: one of a wrong type is an error then.
local holder = holder_of_lock()
local place = place_of(owner)
local score = score_of(owner)
redis.call('LLEN', queue)

if holder == owner or (holder == '' and redis.call('HEXISTS', lock, owner) == 1) then
  return reply(HELD, redis.call('PTTL', lock), token_of(record, owner, lease_ms, identity))
end

if place and score then
  -- A server that is out of memory allows HDEL, and after one write it allows the next.
  redis.call('HDEL', places, '')
  set_end(refresh(owner, place, score))
end

local passed
if not holder then
  passed = pass_on()
  if not passed then
    return reply(HELD, lease_ms, grant(lock, record, owner, lease_ms, identity))
  end
  holder = passed.holder
  if holder == owner then
    -- A grant in a request of its own: no need to wait for a sign of life.
    if passed.lease_ms < lease_ms then redis.call('PEXPIRE', lock, lease_ms) end
    return reply(HELD, math.max(passed.lease_ms, lease_ms), passed.token)
  end
end
if ticket == '' then return reply_to(BUSY, holder, passed) end

local position = 0
if not (place and score) then position = enqueue() end
local answer = reply_to(QUEUED, holder, passed)
answer[4] = position
answer[8] = (java_waits() or (holder and holder ~= '' and not is_fairlock(holder))) and 1 or 0
return answer
