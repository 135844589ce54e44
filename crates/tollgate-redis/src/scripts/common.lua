-- This code precedes every script.
--
-- ARGV[1] is the request: texts that end with a zero byte and doubles, without separators. ARGV[2]
-- is the time of the request in microseconds since the Unix epoch. Without it, the server's clock
-- decides; its time stands still during a script.
--
-- Numbers are doubles, which are exact up to 2^53. All numbers here stay below that bound.
--
-- The checks of buckets and windows avoid calls, closures and tables, because each of them takes
-- more time than arithmetic. `x - x % 1` rounds down, and `x .. ''` writes a number with up to 14
-- digits.

local now, by_server = ARGV[2], not ARGV[2]
if by_server then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end

-- How long the store keeps a state after the state has stopped counting, in milliseconds: a second,
-- which covers the differences between servers' clocks, and one for rounding down.
local grace = 1001

local other_version = 'TOLLGATE another version of tollgate wrote the state: use one version, and reset the key'

-- Returns the quotient of a * b and c, rounded down and rounded up. Requires a < 2^53 and b <= c <
-- 2^49. The result is exact even if a * b is not.
local function muldiv(a, b, c)
  if a * b < 9007199254740992 then
    -- A fraction is at least 1 / c away from any whole number, and the rounding of the division
    -- changes it by less.
    local quotient = a * b / c
    local whole = quotient - quotient % 1
    return whole, quotient > whole and whole + 1 or whole
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
  return quotient, rest > 0 and quotient + 1 or quotient
end
