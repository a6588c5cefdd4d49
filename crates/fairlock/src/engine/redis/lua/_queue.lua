-- The queue of the fair lock, for all but the usual cases.

-- How long a Java waiter waits, as far as its score goes, unless it says so itself. With how little
-- left it is one that has asked for a short wait. The lease that Java keeps by itself: a longer one
-- need not have been there when it queued.
local JAVA_WAIT_MS, SHORT_WAIT_MS, JAVA_LEASE_MS = 300000, 30000, 30000

local function client_of(owner)
  return string.match(owner, '^[^:]*')
end

-- Who holds the lock: nothing if it is free, '' if it has several fields and is no lock of ours.
local function holder_of_lock()
  local count = redis.call('HLEN', lock)
  if count == 0 then return nil end
  if count > 1 then return '' end
  return redis.call('HKEYS', lock)[1]
end

local function exact(score)
  if not score then return nil end
  return math.min(math.floor(tonumber(score)), LARGEST_EXACT)
end

local function score_of(owner)
  return exact(redis.call('ZSCORE', scores, owner))
end

-- Something else than a place counts as none; whether there is something is the second answer.
local function place_of(owner)
  local place = redis.call('HGET', places, owner)
  if not place then return nil, false end
  local ticket, deadline, lease_ms, waits_ms, identity =
    string.match(place, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  if not ticket then return nil, true end
  return {
    ticket = tonumber(ticket), deadline = tonumber(deadline), lease_ms = tonumber(lease_ms),
    waits_ms = tonumber(waits_ms), identity = identity,
  }, true
end

local function first()
  return redis.call('LINDEX', queue, '0')
end

local function remove_first(owner)
  redis.call('LPOP', queue)
  redis.call('ZREM', scores, owner)
  redis.call('HDEL', places, owner)
  forget_end_if_java_is_alone()
end

-- Looks through the list: only for those who leave it, or come back to it.
local function remove(owner)
  redis.call('LREM', queue, 0, owner)
  redis.call('ZREM', scores, owner)
  redis.call('HDEL', places, owner)
  forget_end_if_java_is_alone()
end

local function java_is_alive(owner)
  local score = score_of(owner)
  return score ~= nil and score > now_ms
end

-- A server that does not say who listens leaves it to the deadline of the place.
local function hears(other)
  local answer = redis.pcall('PUBSUB', 'NUMSUB', CLIENT_CHANNEL .. other)
  return answer.err ~= nil or answer[2] > 0
end

-- Whether the head is to be waited for: Java's, or one of fairlock's with its place.
local function is_alive(head)
  if not is_fairlock(head) then return java_is_alive(head) end
  local place = place_of(head)
  local lives = place ~= nil and place.deadline >= now
    and (client_of(head) == client or hears(client_of(head)))
  return lives, place
end

-- Gives a free lock to the first in the queue who is alive. Returns the new holder, its token and
-- for how long it has the lock, and the message to tell it unless it is one of the asking client. A
-- Java waiter is only told: then there is no holder, and the lock is reserved for so long. Nothing
-- at all means that nobody waits.
local function pass_on()
  local head = first()
  while head do
    local lives, place = is_alive(head)
    if lives and not place then
      local message = { channel = java_channel .. ':' .. head, text = '0' }
      return { lease_ms = score_of(head) - now_ms, message = message }
    end
    -- Nobody waits for a head that is dead, or for one that gets the lock now.
    remove_first(head)
    if lives then
      local granted_ms = math.min(place.lease_ms, waiter_ttl_ms)
      local token = grant(lock, record, head, granted_ms, place.identity)
      local passed = { holder = head, token = token, lease_ms = granted_ms }
      if client_of(head) ~= client then
        local text = head .. string.format(' %d %d', token, granted_ms)
        passed.message = { channel = CLIENT_CHANNEL .. client_of(head), text = text }
      end
      return passed
    end
    head = first()
  end
  -- Scores and places of those who are in the list no more.
  if redis.call('EXISTS', scores, places) > 0 then redis.call('DEL', scores, places) end
  return nil
end

-- Whether one of Redisson's is in the list; not so if it has taken away a dead waiter of ours, but
-- not its place. Good enough to know whether to listen to it.
local function java_waits()
  return redis.call('LLEN', queue) > redis.call('HLEN', places)
end

-- The same for sure: looks through the list, once, until it finds one.
local is_only_ours
local function only_ours()
  local from, step = 0, 100
  while is_only_ours == nil do
    local entries = redis.call('LRANGE', queue, from, from + step - 1)
    if #entries == 0 then is_only_ours = true end
    for _, entry in ipairs(entries) do
      if not is_fairlock(entry) then is_only_ours = false end
    end
    from = from + step
  end
  return is_only_ours
end

-- What the waiters of Java can take from the score of one who queues now. Java takes a head whose
-- score has passed for dead, and subtracts the whole wait of each of its own waiters from all scores
-- when that one is served or leaves. How long it waits stands nowhere. It has put its wait on top of
-- the score of the one before it, or of the lease, and what is left of that can be seen. Who has
-- little left has asked for a short wait; anybody else waits for as long as Java does by itself. More
-- than that is never counted: Java's scores are built on ours, and ours must not be built on them.
local function java_waits_ms()
  local base = now_ms + math.min(math.max(redis.call('PTTL', lock), 0), JAVA_LEASE_MS)
  local sum, from, step = 0, 0, 100
  while true do
    local entries = redis.call('LRANGE', queue, from, from + step - 1)
    if #entries == 0 then return sum end
    local entry_scores = redis.call('ZMSCORE', scores, unpack(entries))
    for index, entry in ipairs(entries) do
      local score = exact(entry_scores[index]) or 0
      if not is_fairlock(entry) then
        local left = math.max(score - base, 0)
        sum = sum + (left > SHORT_WAIT_MS and JAVA_WAIT_MS or 2 * left)
      end
      base = math.max(score, now_ms)
    end
    from = from + step
  end
end

-- The same for one who comes to the end of the queue: nothing more before it than before the last.
local function next_waits_ms()
  local tail = redis.call('LINDEX', queue, '-1')
  if not tail then return 0 end
  local place, has_place = place_of(tail)
  if is_fairlock(tail) and has_place then return place and place.waits_ms or 0 end
  return java_waits_ms()
end

-- A sign of life of one in the queue. Returns its score. What was once added for Java is kept for as
-- long as Java is there.
local function refresh(owner, place, score)
  place.deadline = math.max(place.deadline, now + waiter_ttl_ms * 1000)
  if place.waits_ms > 0 and only_ours() then place.waits_ms = 0 end
  score = math.max(score, now_ms + LEAST_MARGIN_MS + place.waits_ms)
  write_place(owner, place.ticket, place.deadline, place.lease_ms, place.waits_ms, place.identity)
  redis.call('ZADD', scores, score, owner)
  return score
end

-- The layout of every reply. `holder` is who has the lock now, `passed` what pass_on returned. The
-- grantee may have got the lock before: its message may be lost. The token is the grantee's, else
-- the last one drawn: a grant that comes by message counts only if its token is larger. The lease
-- of a lock that is reserved for a Java waiter is its time to come.
local function reply_to(state, holder, passed)
  passed = passed or {}
  local grantee = holder and client_of(holder) == client and holder or nil
  local message = passed.message
  local lease_ms = passed.lease_ms or redis.call('PTTL', lock)
  local token = passed.token or last_grant(record)
  return reply(state, lease_ms, token, grantee, message and tell(message.channel, message.text))
end
