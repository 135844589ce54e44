-- These functions precede every script. Numbers are doubles, which are exact up to 2^53. All
-- numbers here stay below that bound. They are written with %.0f, because some versions write large
-- numbers as 1.8e+15.

-- Returns the given time, or the server's time, in microseconds since the Unix epoch. The server's
-- time stands still during a script.
local function clock(given)
  if given ~= '' then return tonumber(given), false end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], true
end

-- Returns the quotient of a * b and c, rounded down, and the remainder. Requires a < 2^53 and b <=
-- c < 2^49. The result is exact even if a * b is not.
local function muldiv(a, b, c)
  if a * b < 9007199254740992 then
    local product = a * b
    return math.floor(product / c), product % c
  end
  local quotient, rest, place = 0, 0, 2251799813685248
  -- Long division that consumes three bits of a at a time, from the top.
  while place >= 1 do
    local digit = math.floor(a / place)
    a = a - digit * place
    rest = rest * 8 + digit * b
    local times = math.floor(rest / c)
    quotient, rest = quotient * 8 + times, rest - times * c
    place = place / 8
  end
  return quotient, rest
end

-- Returns the end of a state string. This is the time at which the pause ends, `paused`, or nothing
-- if `left`, the rest of the pause, is 0.
local function until_end(left, paused)
  if left == 0 then return '' end
  return string.format(' %.0f', paused)
end

-- Returns a / b rounded up.
local function divceil(a, b)
  return math.ceil(a / b)
end

-- Returns how much of a window's count still applies after `elapsed` of the next window. The result
-- is rounded up, so that a charge fits according to the exact estimate as well.
local function weighed(count, elapsed, period)
  local whole, rest = muldiv(count, period - elapsed, period)
  if rest > 0 then whole = whole + 1 end
  return whole
end
