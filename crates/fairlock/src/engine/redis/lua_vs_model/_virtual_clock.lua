-- The clock of the differential test, ahead of every script: the commands that tell the time or set
-- the end of a key do so by the key `clock`, and keys end when the test says so. The hash `ends`
-- keeps the end of every key, in us.

local server = redis

local function now_us()
  return tonumber(server.call('GET', 'clock'))
end

local function end_at(key, since_1970_us)
  if server.call('EXISTS', key) == 0 then return 0 end
  server.call('HSET', 'ends', key, string.format('%.0f', since_1970_us))
  return 1
end

-- A key that has become empty is gone, and its end with it.
local function take_away(command)
  return function(key, ...)
    local answer = server.call(command, key, ...)
    if server.call('EXISTS', key) == 0 then server.call('HDEL', 'ends', key) end
    return answer
  end
end

local on_the_clock = {
  TIME = function()
    local us = now_us()
    return { tostring(math.floor(us / 1000000)), tostring(us % 1000000) }
  end,
  PTTL = function(key)
    if server.call('EXISTS', key) == 0 then return -2 end
    local ends_us = server.call('HGET', 'ends', key)
    if not ends_us then return -1 end
    return math.max(0, math.floor((ends_us - now_us()) / 1000))
  end,
  PEXPIRE = function(key, milliseconds)
    return end_at(key, now_us() + milliseconds * 1000)
  end,
  PEXPIREAT = function(key, since_1970_ms)
    return end_at(key, since_1970_ms * 1000)
  end,
  PERSIST = function(key)
    return server.call('HDEL', 'ends', key)
  end,
  LPOP = take_away('LPOP'),
  LREM = take_away('LREM'),
  ZREM = take_away('ZREM'),
  HDEL = take_away('HDEL'),
  DEL = function(...)
    server.call('HDEL', 'ends', ...)
    return server.call('DEL', ...)
  end,
  SET = function(key, value, px, milliseconds)
    server.call('SET', key, value)
    server.call('HDEL', 'ends', key)
    if px == 'PX' then end_at(key, now_us() + milliseconds * 1000) end
  end,
}

local redis = {
  call = function(command, ...)
    local virtual = on_the_clock[command]
    if virtual then return virtual(...) end
    return server.call(command, ...)
  end,
  pcall = server.pcall,
}
