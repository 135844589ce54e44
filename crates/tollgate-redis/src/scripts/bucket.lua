-- The buckets: token bucket, leaky bucket, leaky queue.
--
-- A token is `unit` units, and each microsecond refills `leak` units. Both are whole numbers, so
-- nothing is ever rounded.
-- State: "b1" debt time unit leak paused leased, the numbers as doubles. At `time`, `debt` units
-- were missing, in the units of the quota that wrote the state. After a check, at most the burst is
-- missing; after a forced charge, at most `most` tokens. `paused` is the time at which a pause
-- ends, or 0, and `leased` the time at which the last lease ends, or 0.
--
-- Request: op unit leak burst most tokens, and two more numbers | check: lease hold | refund: until
-- (`tokens` is the cost, the number of tokens, or for pause a time)
-- Answer: granted extra debt now asked left (`now` is the key's time, which is not before `asked`;
-- for force, `extra` is the charged amount; `left` is the rest of the pause)

local op, unit, leak, burst, most, tokens, second, hold = struct.unpack('<sddddddd', ARGV[1])
local asked, capacity, full = now, burst * unit, most * unit

local debt, back, paused, leased = 0, false, 0, 0
-- The debt in the units of the quota that wrote the state. If it exceeds what this quota counts, or
-- if the key is paused, the state keeps these units.
local kept, units, leaks, keeps = 0, unit, leak, false
local state = redis.call('GET', KEYS[1])
if state then
  local format, time
  if #state == 50 then
    format, debt, time, units, leaks, paused, leased = struct.unpack('<c2dddddd', state)
  end
  if format ~= 'b1' then
    local is_bucket = string.find(state, '^b%d') or string.find(state, '^%d+ %d+ %d+ %d+')
    return redis.error_reply(is_bucket and other_version or 'TOLLGATE the key holds no bucket')
  end
  if time <= now then
    debt = debt - (now - time) * leaks
    if debt < 0 then debt = 0 end
  elseif by_server then
    -- The server's clock has stepped back. The bucket, its pause and its leases continue from the
    -- new time, which is stored immediately. Otherwise, nothing would drain until the old time.
    back, paused, leased = true, paused - (time - now), leased - (time - now)
  else
    -- If a caller's clock is behind, the caller must not drain again what other callers have
    -- drained.
    now = time
  end
  kept, keeps = debt, op == 'pause' or debt > most * units
  if units ~= unit then
    -- The state was written under another quota. Charged tokens stay charged, counted in tokens.
    if debt / units >= most then
      debt = full
    else
      local _, part = muldiv(debt, unit % units, units)
      debt = debt * math.floor(unit / units) + part
    end
  end
  if debt > full then debt = full end
end

if op == 'pause' then paused = math.max(paused, asked + tokens) end
local left = paused - asked
if left < 0 then left = 0 end

local granted, extra, writes = 0, 0, false
if op == 'check' or op == 'peek' then
  local cost, lease = tokens, second
  if cost == 0 or left == 0 and cost <= burst and debt + cost * unit <= capacity then granted = 1 end
  if op == 'check' and granted == 1 then
    if lease > 0 and left == 0 then
      -- Tokens that may be spent until `hold` has passed are charged as if they were spent then.
      local held = math.max(debt, leak * hold)
      local room = math.floor((capacity - held) / unit) - cost
      extra = math.max(math.min(lease, room), 0)
      if extra > 0 then debt, leased = held, math.max(leased, now + hold) end
    end
    debt = debt + (cost + extra) * unit
    writes = cost + extra > 0
  else
    writes = back and op == 'check'
  end
elseif op == 'force' then
  granted = 1
  extra = math.min(tokens, math.floor((full - debt) / unit))
  debt = debt + extra * unit
  writes = extra > 0
elseif op == 'pause' then
  writes = true
elseif debt > 0 then
  -- Tokens that have refilled since the charge can't be given back: see the rule in the library.
  -- The rounding never gives back too much. What refills until the last lease ends can't be given
  -- back either, because the charge for this lease may consist of earlier charges.
  local till, held = second, 0
  local from = math.max(now, leased)
  if till > from then held = (till - from) * leak - (leak - 1) end
  if tokens <= burst then held = math.min(held, tokens * unit) end
  debt = math.max(debt - held, 0)
  if keeps then
    held = held * math.floor(units / unit) + muldiv(held, units % unit, unit)
    kept = math.max(kept - held, 0)
  end
  writes = true
end

if writes then
  if not keeps then kept, units, leaks = debt, unit, leak end
  if kept <= 0 and left == 0 then
    redis.call('DEL', KEYS[1])
  else
    if left == 0 then paused = 0 end
    local ttl = kept / leaks
    if ttl < left then ttl = left end
    ttl = ttl / 1000
    local packed = struct.pack('<c2dddddd', 'b1', kept, now, units, leaks, paused, leased)
    redis.call('SET', KEYS[1], packed, 'PX', ttl - ttl % 1 + grace .. '')
  end
end
return struct.pack('<dddddd', granted, extra, debt, now, asked, left)
