-- What the scripts of the fair lock begin with. Each of them has
--   KEYS  lock, record, queue, scores, places
--   ARGV  expires_us, waiter_ttl_ms, the channel of Java's waiters, the asking client, and what it
--         needs besides
-- queue and scores are Redisson's: a list of owners in the order of service, and until when, in ms,
-- Java takes each of them for alive. places, a hash, is fairlock's own: for each of its waiters
-- `ticket_us deadline_us lease_ms waits_ms identity`. A fairlock waiter lives as long as its place.
--
-- A server that is out of memory refuses the first write of a script or none: so every script
-- fails as a whole or not at all.

local lock, record, queue, scores, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local waiter_ttl_ms, java_channel, client = tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- How far ahead of the clock a score is at least: as long as a waiter that missed a heartbeat or
-- two is not dead.
local LEAST_MARGIN_MS = 2 * waiter_ttl_ms
-- The keys of a queue outlive its last score by about a day: never one of them alone. Moving their
-- end costs, so it is not done for less than an hour.
local FORGOTTEN_AFTER_MS, END_MOVES_BY_MS = 86400000, 3600000

local CLIENT_CHANNEL = 'fairlock:client:'

local now_ms = math.floor(now / 1000)

-- fairlock's client uuids are version 8; all other ids count as Java's.
local function is_fairlock(owner)
  return string.sub(owner, 14, 15) == '-8' and string.sub(owner, 37, 37) == ':'
end

-- Java sets no end, so a queue with nobody but Java in it has none.
local function forget_end_if_java_is_alone()
  if redis.call('EXISTS', places) == 0 then
    redis.call('PERSIST', queue)
    redis.call('PERSIST', scores)
  end
end

-- List, scores and places end together; what was made anew has no end yet.
local function set_end(score, is_new)
  if is_new or redis.call('PTTL', queue) < score - now_ms + FORGOTTEN_AFTER_MS - END_MOVES_BY_MS then
    local end_ms = score + FORGOTTEN_AFTER_MS
    redis.call('PEXPIREAT', queue, end_ms)
    redis.call('PEXPIREAT', scores, end_ms)
    redis.call('PEXPIREAT', places, end_ms)
  end
end

local function write_place(owner, ticket, deadline, lease_ms, waits_ms, identity)
  local numbers = string.format('%d %d %d %d ', ticket, deadline, lease_ms, waits_ms)
  redis.call('HSET', places, owner, numbers .. identity)
end
