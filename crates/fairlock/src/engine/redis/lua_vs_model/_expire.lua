-- Sets the clock to ARGV[1] and deletes every key that has ended by then. Forgets the ends of
-- keys that are gone already, because they have become empty.

redis.call('SET', 'clock', ARGV[1])
local ends = redis.call('HGETALL', 'ends')
for index = 1, #ends, 2 do
  local gone = redis.call('EXISTS', ends[index]) == 0
  if gone or tonumber(ends[index + 1]) < tonumber(ARGV[1]) then
    redis.call('DEL', ends[index])
    redis.call('HDEL', 'ends', ends[index])
  end
end
return 0
