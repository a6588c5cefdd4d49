-- All that can be seen of a fair lock: as in `_dump.lua`, then the queue, its scores and its
-- places, and what is left of each of these. KEYS: lock, record, queue, scores, places. Prefixed
-- with the virtual clock.

local grant = redis.pcall('GET', KEYS[2])
return {
  redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1]),
  type(grant) == 'string' and grant or '', redis.call('PTTL', KEYS[2]),
  redis.call('LRANGE', KEYS[3], 0, -1),
  redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[5]),
  redis.call('PTTL', KEYS[3]), redis.call('PTTL', KEYS[4]), redis.call('PTTL', KEYS[5]),
}
