-- The buckets: token bucket, leaky bucket, leaky queue.
--
-- A token is `unit` units, and each microsecond refills `leak` units. Both are whole numbers, so
-- nothing is ever rounded.
-- State: "b1" debt time unit leak paused, the numbers as doubles. At `time`, `debt` units were
-- missing, in the units of the quota that wrote the state. After a check, at most the burst is
-- missing; after a forced charge, at most `most` tokens. `paused` is the time at which a pause
-- ends, or 0.
-- With leases, the state continues: out later ends step. `out` tokens may be spent until `ends`,
-- and `later` tokens until `ends + step`. These tokens do not refill until then, so `debt` is never
-- less.
--
-- Request: op unit leak burst most tokens second step, and for each settled lease: until granted
-- unspent (`tokens` is the cost, the number of tokens, or for pause a time; `second` is for check
-- the tokens to lease, and for refund the time until which the bucket holds the charge)
-- Answer: granted extra debt now asked until leased left (`now` is the key's time, which is not
-- before `asked`; `leased` is the part of `debt` that refills from `until` on at the latest; for
-- check, `extra` tokens are leased until then; for force, `extra` is the charged amount; `left` is
-- the rest of the pause)

local op, unit, leak, burst, most, tokens, second, stride, place = struct.unpack('<sddddddd', ARGV[1])
local asked, capacity, full = now, burst * unit, most * unit

local debt, back, settles, paused = 0, false, false, 0
local out, later, ends, step = 0, 0, 0, 0
-- The debt in the units of the quota that wrote the state. If it exceeds what this quota counts, or
-- if the key is paused, the state keeps these units.
local kept, units, leaks, keeps = 0, unit, leak, false
local state = redis.call('GET', KEYS[1])
if state then
  local format, time
  if #state == 42 then
    format, debt, time, units, leaks, paused = struct.unpack('<c2ddddd', state)
  elseif #state == 74 then
    format, debt, time, units, leaks, paused, out, later, ends, step = struct.unpack('<c2ddddddddd', state)
  end
  if format ~= 'b1' then
    local is_bucket = string.find(state, '^b%d') or string.find(state, '^%d+ %d+ %d+ %d+')
    return redis.error_reply(is_bucket and other_version or 'TOLLGATE the key holds no bucket')
  end
  if time <= now then
    local refilled, least = (now - time) * leaks, 0
    if out + later > 0 then
      for _ = 1, 2 do
        if now < ends then break end
        -- From the end of a lease on, its tokens refill.
        least = math.max(least, (out + later) * units - (now - ends) * leaks)
        out, later, ends = later, 0, ends + step
      end
      least = math.max(least, (out + later) * units)
    end
    debt = debt - refilled
    if debt < least then debt = least end
  elseif by_server then
    -- The server's clock has stepped back. The bucket, its pause and its leases continue from the
    -- new time, which is stored immediately. Otherwise, nothing would drain until the old time.
    back, paused, ends = true, paused - (time - now), ends - (time - now)
  else
    -- If a caller's clock is behind, the caller must not drain again what other callers have
    -- drained.
    now = time
  end
  -- Settled leases. Their tokens refill from now on, and unspent tokens return at once. A lease
  -- that has ended is not known any more.
  while place < #ARGV[1] do
    local till, granted, unspent
    till, granted, unspent, place = struct.unpack('<ddd', ARGV[1], place)
    local known = true
    if till == ends and out > 0 then
      out = math.max(out - granted, 0)
    elseif till == ends + step and later > 0 then
      later = math.max(later - granted, 0)
    else
      known = false
    end
    if known then debt, settles = math.max(debt - unspent * units, (out + later) * units), true end
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

local granted, extra, writes = 0, 0, settles
if op == 'check' or op == 'peek' then
  local cost, lease = tokens, second
  if cost == 0 or left == 0 and cost <= burst and debt + cost * unit <= capacity then granted = 1 end
  if op == 'check' and granted == 1 then
    if lease > 0 and left == 0 then
      -- At most half of the burst is leased, so that requests without a lease also find tokens. A
      -- lease takes at most half of this, so that other machines also find some.
      local room = math.floor((capacity - debt) / unit) - cost
      local free = math.floor(burst / 2) - out - later
      extra = math.max(math.min(lease, room, math.ceil(free / 2)), 0)
      if extra > 0 then
        if out + later == 0 then ends = now + stride end
        if later == 0 then step = stride end
        later = later + extra
      end
    end
    debt = debt + (cost + extra) * unit
    writes = settles or cost + extra > 0
  else
    writes = settles or back and op == 'check'
  end
elseif op == 'force' then
  granted = 1
  extra = math.max(math.min(tokens, math.floor((full - debt) / unit)), 0)
  debt = debt + extra * unit
  writes = settles or extra > 0
elseif op == 'pause' then
  writes = true
elseif debt > 0 then
  -- Tokens that have refilled since the charge can't be given back: see the rule in the library.
  -- The rounding never gives back too much.
  local till, held = second, 0
  if till > now then held = (till - now) * leak - (leak - 1) end
  if tokens <= burst then held = math.min(held, tokens * unit) end
  debt = math.max(debt - held, (out + later) * unit)
  if keeps then
    held = held * math.floor(units / unit) + muldiv(held, units % unit, unit)
    kept = math.max(kept - held, (out + later) * units)
  end
  writes = true
end

local leased, last = out + later, ends
if later > 0 then last = ends + step end
if writes then
  if not keeps then kept, units, leaks = debt, unit, leak end
  if kept <= 0 and left == 0 then
    redis.call('DEL', KEYS[1])
  else
    if left == 0 then paused = 0 end
    local packed, ttl = struct.pack('<c2ddddd', 'b1', kept, now, units, leaks, paused), kept / leaks
    if leased > 0 then
      packed = packed .. struct.pack('<dddd', out, later, ends, step)
      -- The tokens of a lease refill from its end on.
      ttl = ttl + last - now
    end
    if ttl < left then ttl = left end
    ttl = ttl / 1000
    redis.call('SET', KEYS[1], packed, 'PX', ttl - ttl % 1 + grace .. '')
  end
end
return struct.pack('<dddddddd', granted, extra, debt, now, asked, last, leased * unit, left)
