-- What nobody should do to a queue. ARGV: what, an owner, a score, a place. KEYS: lock, record,
-- queue, scores, places. Prefixed with the virtual clock.

local queue, scores, places = KEYS[3], KEYS[4], KEYS[5]
local what, owner, score, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if what == 'no score' then
  redis.call('ZREM', scores, owner)
elseif what == 'no entry' then
  redis.call('LREM', queue, 0, owner)
elseif what == 'entry' then
  redis.call('RPUSH', queue, owner)
elseif what == 'score' then
  redis.call('ZADD', scores, score, owner)
elseif what == 'place' then
  redis.call('HSET', places, owner, place)
elseif what == 'garbage place' then
  redis.call('ZREM', scores, owner)
  redis.call('HSET', places, owner, '12 x')
elseif what == 'no place' then
  redis.call('HDEL', places, owner)
elseif what == 'no queue' then
  redis.call('DEL', queue)
elseif what == 'no scores' then
  redis.call('DEL', scores)
elseif what == 'no places' then
  redis.call('DEL', places)
end
if redis.call('EXISTS', places) == 0 then
  redis.call('PERSIST', queue)
  redis.call('PERSIST', scores)
end
return 0
