-- Time, as the scripts see it. Every script is prefixed with this file, and nothing else in the
-- scripts reads a clock or sets an expiry: the tests put a clock of their own in its place.

-- Microseconds since 1970, on the server's clock.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Milliseconds that a key has left: -1 without an end, -2 without the key.
local function left_ms(key)
  return redis.call('PTTL', key)
end

local function end_in(key, milliseconds)
  redis.call('PEXPIRE', key, milliseconds)
end

local function store(key, value, milliseconds)
  redis.call('SET', key, value, 'PX', milliseconds)
end

local function delete(key)
  redis.call('DEL', key)
end
