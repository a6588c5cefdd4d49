-- What others do to a lock. ARGV[1] says what: `hold` takes it as Redisson would, for ARGV[2] ms;
-- `delete` deletes it; `garbage` and `list` spoil the record of the last grant; `forget` deletes
-- the record. KEYS: lock, record. Prefixed with the virtual clock.

local lock, record, what = KEYS[1], KEYS[2], ARGV[1]
if what == 'hold' then
  redis.call('DEL', lock)
  redis.call('HSET', lock, 'java:1', 1)
  redis.call('PEXPIRE', lock, tonumber(ARGV[2]))
elseif what == 'delete' then
  redis.call('DEL', lock)
else
  redis.call('DEL', record)
  if what == 'garbage' then redis.call('SET', record, '99999999999999999999\nsomebody\nx') end
  if what == 'list' then redis.call('RPUSH', record, 'x') end
end
return 0
