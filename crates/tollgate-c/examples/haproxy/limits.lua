-- The limits of haproxy.cfg. Each limit is a converter, which takes a key and returns the seconds
-- to wait, or 0 if the request may go ahead.
local tollgate = require("tollgate")

local per_client = tollgate.limit("per_client", "100/s burst 20")

core.register_converters("per_client", function(key)
    local admitted, wait = per_client:check(key)
    -- No wait is known if the table is full, or if the cost is above the capacity.
    return admitted and 0 or wait or 60
end)
