-- Returns the positions, from 1, of the commands in ARGV that this connection's user may not run on
-- the key. Deletes the key, which the trial of a limit's script has written.

local refused = {}
for number, command in ipairs(ARGV) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(command, KEYS[1]) then refused[#refused + 1] = number end
end
redis.pcall('DEL', KEYS[1])
return refused
