-- Adds one to a counter.
--
-- KEYS[1]  the counter
-- ARGV     none
-- Replies  the new value
return redis.call('INCR', KEYS[1])
