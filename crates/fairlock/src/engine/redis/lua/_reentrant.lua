-- What every script begins with. Each call of a script makes its functions anew, which costs as much
-- as a command for every few of them: so they are few here.
--
-- Every script answers in one layout:
--   { state, server time in us, lease left in ms, position, token, grantee, heard, foreign }
-- lease left: of whoever holds the lock now, -1 without an end, -2 if it is free.
-- heard: how many were told that the lock is free, -1 if the server refused to tell.

local LATE, HELD, BUSY, RELEASED, NOT_HELD, FREE, QUEUED = 0, 1, 2, 3, 4, 5, 6

-- How long the record of a grant outlives its lease: gets tokens over a clock that is set back.
local RECORD_MS = 3600000

-- Beyond this a Lua number is not exact; no token gets here before the year 2255.
local LARGEST_EXACT = 9007199254740991

-- Microseconds since 1970, on the server's clock.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function reply(state, lease_ms, token, grantee, heard)
  return { state, now, lease_ms, 0, token or 0, grantee or '', heard or 0, 0 }
end

local function is_late(expires_us)
  return now > tonumber(expires_us)
end

-- The last token drawn and its owner. Something else than a record counts as none.
local function last_grant(record_key)
  local record = redis.pcall('GET', record_key)
  if type(record) ~= 'string' then return 0, nil end
  local token, owner = string.match(record, '^(%d+)\n([^\n]*)\n')
  token = tonumber(token)
  if not token or token >= LARGEST_EXACT then return 0, nil end
  return token, owner
end

local function draw_token(last, record_key, owner, lease_ms, identity)
  local token = math.max(last + 1, now)
  local since_ms = math.floor(now / 1000)
  local record = string.format('%d\n%s\n%d\n%s', token, owner, since_ms, identity)
  redis.call('SET', record_key, record, 'PX', lease_ms + RECORD_MS)
  return token
end

-- The token of an owner that holds the lock already; drawn anew if its record was lost.
local function token_of(record_key, owner, lease_ms, identity)
  local last, of = last_grant(record_key)
  if of == owner then return last end
  return draw_token(last, record_key, owner, lease_ms, identity)
end

-- The hash is written first: a server that is out of memory refuses this, and nothing is changed.
local function grant(lock, record_key, owner, lease_ms, identity)
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, lease_ms)
  local last = last_grant(record_key)
  return draw_token(last, record_key, owner, lease_ms, identity)
end

-- Tells whoever listens. The change that is told has been made: a refusal must not undo the
-- script's success.
local function tell(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  if type(heard) == 'table' then return -1 end
  return heard
end
