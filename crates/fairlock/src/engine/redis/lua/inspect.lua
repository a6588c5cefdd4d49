-- Tells who holds the lock.
--
-- KEYS  lock, record
-- ARGV  expires_us
-- Replies  BUSY or FREE, followed by: the fields and values of the lock's hash, the record;
--          LATE
-- Changes  nothing

local lock, record = KEYS[1], KEYS[2]

if is_late(ARGV[1]) then return reply(LATE, redis.call('PTTL', lock)) end

local fields = redis.call('HGETALL', lock)
local answer = reply(#fields > 0 and BUSY or FREE, redis.call('PTTL', lock))
answer[#answer + 1] = fields
local grant = redis.pcall('GET', record)
answer[#answer + 1] = type(grant) == 'string' and grant or ''
return answer
