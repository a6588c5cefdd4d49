-- What `fair_release.lua` usually finds, ahead of all that the rest needs: the owner gives back the
-- lock as a whole, and nobody waits, or the head of the queue is a fairlock waiter that is alive.
-- Decides before it changes anything.

if redis.call('HEXISTS', lock, ARGV[5]) == 1 and ARGV[6] == '0' and not is_late(ARGV[1]) then
  local head = redis.call('LINDEX', queue, '0')

  if not head and redis.call('EXISTS', scores, places) == 0 then
    redis.call('DEL', lock)
    return reply(RELEASED, -2, (last_grant(record)))
  elseif head and is_fairlock(head) then
    local place = redis.call('HGET', places, head) or ''
    local deadline, lease_ms, identity = string.match(place, '^%d+ (%d+) (%d+) %d+ (.*)$')
    local next_client = string.sub(head, 1, 36)
    local channel = CLIENT_CHANNEL .. next_client
    local is_own = next_client == client
    if deadline and tonumber(deadline) >= now
      and (is_own or (redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0) > 0) then
      -- The first change: if scores is something else, nothing has been changed yet.
      redis.call('ZREM', scores, head)
      redis.call('LPOP', queue)
      redis.call('HDEL', places, head)
      forget_end_if_java_is_alone()
      redis.call('DEL', lock)
      local granted_ms = math.min(tonumber(lease_ms), waiter_ttl_ms)
      local token = grant(lock, record, head, granted_ms, identity)
      if is_own then return reply(RELEASED, granted_ms, token, head) end
      local message = string.format('%s %d %d', head, token, granted_ms)
      return reply(RELEASED, granted_ms, token, '', tell(channel, message))
    end
  end
end
