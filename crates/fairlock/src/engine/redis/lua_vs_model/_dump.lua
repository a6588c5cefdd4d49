-- All that can be seen of a lock: the fields of its hash, what is left of it, the record of the
-- last grant, what is left of that. KEYS: lock, record. Prefixed with the virtual clock.

local grant = redis.pcall('GET', KEYS[2])
return {
  redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1]),
  type(grant) == 'string' and grant or '', redis.call('PTTL', KEYS[2]),
}
