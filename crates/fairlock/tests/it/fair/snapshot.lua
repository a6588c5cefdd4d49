-- One look at the queue of a fair lock.
--
-- KEYS  queue, scores, places
-- Replies  server time in ms; the queue; the members of scores, each with its score; the owners of
--          places; the time that queue, scores and places have left, in ms

local time = redis.call('TIME')
return {
  time[1] * 1000 + math.floor(time[2] / 1000),
  redis.call('LRANGE', KEYS[1], 0, -1),
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'),
  redis.call('HKEYS', KEYS[3]),
  { redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[3]) },
}
