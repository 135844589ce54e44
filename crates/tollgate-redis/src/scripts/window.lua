-- The windows: fixed window, sliding window. Window n contains the microseconds from n * period to
-- (n + 1) * period.
--
-- State: "w1" number previous present period paused, the numbers as doubles. A fixed window does
-- not use `previous`, but keeps it for a sliding window of the same name. `paused` is the time at
-- which a pause ends, or 0.
--
-- Request: op period limit most sliding tokens lease, and for each refund and each settled lease:
-- number granted unspent (`tokens` is the cost, the number of tokens, or for pause a time; the
-- window of this number has counted `granted` tokens, of which `unspent` return)
-- Answer: granted extra number previous present asked left (`asked` is the given time or the
-- server's time; for force, `extra` is the charged amount, until `most` tokens are taken; `left` is
-- the rest of the pause)

local op, period, limit, most, sliding, tokens, lease, place = struct.unpack('<sdddddd', ARGV[1])
sliding = sliding == 1
local asked, number, previous, present = now, now / period, 0, 0
number = number - number % 1
local back, paused = false, 0
-- The state, moved to the current window of the quota that wrote the state.
local n, before, count, length

local state = redis.call('GET', KEYS[1])
if state then
  local format
  if #state == 42 then
    format, n, before, count, length, paused = struct.unpack('<c2ddddd', state)
  end
  if format ~= 'w1' then
    local is_window = string.find(state, '^w%d') or string.find(state, '^%d+ %d+ %d+ %d+')
    return redis.error_reply(is_window and other_version or 'TOLLGATE the key holds no windows')
  end
  local here = now / length
  here = here - here % 1
  if by_server and n > here + 1 then
    -- The server's clock has stepped far back. The counts are moved to the current window and
    -- stored immediately. Otherwise, each window until the old time would move them again. A pause
    -- is moved by one window less, so that it never becomes shorter.
    paused = paused - (n - here - 1) * length
    n, back = here, true
  elseif n > here then
    -- The time is earlier than the key's time, so the request is judged at the start of the key's
    -- window.
    now, here = n * length, n
  end
  if here == n + 1 then
    n, before, count = here, count, 0
  elseif here > n then
    n, before, count = here, 0, 0
  end
  if length == period then
    number, previous, present = n, before, count
  else
    -- The state was written under another quota. The counts that still apply are moved to the
    -- current window.
    number = math.floor(now / period)
    present = count
    if sliding then
      local _, weighed = muldiv(before, (n + 1) * length - now, length)
      present = count + weighed
    end
  end
end

-- Tokens that return to the window that counted them. If the state was written under another
-- period, the counts do not have to contain these tokens, and nothing returns.
local returned = false
while length == period and place < #ARGV[1] do
  local window, _, unspent
  window, _, unspent, place = struct.unpack('<ddd', ARGV[1], place)
  if window == number and present > 0 then
    present, returned = math.max(present - unspent, 0), true
  elseif window == number - 1 and previous > 0 then
    previous, returned = math.max(previous - unspent, 0), true
  end
end

local used = present
if sliding and previous > 0 then
  -- The part of the previous window that still counts is rounded up, so that a charge fits
  -- according to the exact estimate as well.
  local _, weighed = muldiv(previous, (number + 1) * period - now, period)
  used = present + weighed
end

if op == 'pause' then paused = math.max(paused, asked + tokens) end
local left = paused - asked
if left < 0 then left = 0 end

local granted, extra, writes = 0, 0, returned
if op == 'check' or op == 'peek' then
  local cost, free = tokens, limit - used
  if free < 0 then free = 0 end
  if cost == 0 or left == 0 and cost <= free then granted = 1 end
  if op == 'check' and granted == 1 then
    -- At most half of the remaining tokens are leased, so that other machines also find some. A
    -- caller whose clock is in an earlier window gets no lease, because it would spend the lease
    -- after the key's window has ended.
    if lease > 0 and left == 0 and now == asked then
      extra = math.max(math.min(lease, math.ceil((free - cost) / 2)), 0)
    end
    present = present + cost + extra
    writes = returned or cost + extra > 0
  else
    writes = returned or back and op == 'check'
  end
elseif op == 'force' then
  granted = 1
  extra = math.max(math.min(tokens, most - used), 0)
  present = present + extra
  writes = returned or extra > 0
elseif op == 'pause' then
  writes = true
end

if writes then
  -- A pause changes no counts, so the state stays in the windows of the quota that wrote it.
  if op ~= 'pause' or not state then n, before, count, length = number, previous, present, period end
  if left == 0 then paused = 0 end
  -- Machines with sliding windows also need the state in the next window.
  local ttl = (n + 2) * length - now
  if ttl < left then ttl = left end
  ttl = ttl / 1000
  redis.call('SET', KEYS[1], struct.pack('<c2ddddd', 'w1', n, before, count, length, paused), 'PX', ttl - ttl % 1 + grace .. '')
end
return struct.pack('<ddddddd', granted, extra, number, previous, present, asked, left)
