-- What `fair_acquire.lua` usually finds, ahead of all that the rest needs: the lock is free and
-- nobody waits, or another fairlock owner has it and the asker queues for the first time, behind
-- fairlock waiters only. Decides before it changes anything.

if not is_late(ARGV[1]) then
  local owner, lease_ms, identity = ARGV[5], tonumber(ARGV[6]), ARGV[7]
  local holders, tail = redis.call('HLEN', lock), redis.call('LINDEX', queue, '-1')
  local holder = holders == 1 and redis.call('HKEYS', lock)[1]

  if holders == 0 and not tail then
    if redis.call('EXISTS', scores, places) == 0 then
      return reply(HELD, lease_ms, grant(lock, record, owner, lease_ms, identity))
    end
  elseif holder and holder ~= owner and is_fairlock(holder)
    and (not tail or is_fairlock(tail)) and ARGV[8] == 'first' then
    local place, last_place = unpack(redis.call('HMGET', places, owner, tail or owner))
    local is_known = place or redis.call('ZSCORE', scores, owner)
    -- With nobody of Java's before the last one, there is none before the next.
    if not is_known and (not tail or last_place and string.find(last_place, '^%d+ %d+ %d+ 0 ')) then
      local score = now_ms + LEAST_MARGIN_MS
      local length = redis.call('RPUSH', queue, owner)
      redis.call('ZADD', scores, score, owner)
      write_place(owner, now, now + waiter_ttl_ms * 1000, lease_ms, 0, identity)
      set_end(score)
      local own_holder = string.sub(holder, 1, 36) == client and holder
      local answer = reply(QUEUED, redis.call('PTTL', lock), last_grant(record), own_holder)
      answer[4] = length
      answer[8] = length > redis.call('HLEN', places) and 1 or 0
      return answer
    end
  end
end
