-- The clock of the differential test, in place of the server's: it shows what the key `clock`
-- says, and keys end when the test says so. The hash `ends` keeps the end of every key, in us.

local function now_us()
  return tonumber(redis.call('GET', 'clock'))
end

local function left_ms(key)
  if redis.call('EXISTS', key) == 0 then return -2 end
  local ends_us = redis.call('HGET', 'ends', key)
  if not ends_us then return -1 end
  return math.max(0, math.floor((ends_us - now_us()) / 1000))
end

local function end_in(key, milliseconds)
  if redis.call('EXISTS', key) == 0 then return end
  redis.call('HSET', 'ends', key, string.format('%.0f', now_us() + milliseconds * 1000))
end

local function delete(key)
  redis.call('DEL', key)
  redis.call('HDEL', 'ends', key)
end

local function store(key, value, milliseconds)
  redis.call('SET', key, value)
  end_in(key, milliseconds)
end
