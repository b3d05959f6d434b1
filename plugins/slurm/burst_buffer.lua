-- posthaste's burst buffer for Slurm 22.05, 23.02, 24.05 and later. `posthaste slurm install` puts it beside
-- slurm.conf and fills in the next two lines; all that it does is done by `posthaste slurm hook`.
local PROGRAM = "posthaste"
local CONFIG = "/etc/posthaste/slurm.toml"

lua_script_name = "burst_buffer.lua"

-- Slurm shows a message on one line.
local MESSAGE_MAX = 512

local function quoted(word)
    return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- Runs the hook with what Slurm gave, as words; of the table of 23.02 and later it is told of which array the job is
-- one: Slurm keeps one script for all of them. Lua 5.1 loses the exit code of a pipe, so the shell prints it last: without that
-- line the hook was killed, and what it was to do is not done. Slurm 22.05 takes a stage-in that
-- was killed at its timeout for a good one unless told otherwise.
local function hook(name, ...)
    local options = { quoted(PROGRAM), "slurm", "hook", "--config", quoted(CONFIG) }
    local words = { name, "--" }
    for _, argument in ipairs({ ... }) do
        if type(argument) == "string" or type(argument) == "number" then
            words[#words + 1] = quoted(tostring(argument))
        elseif type(argument) == "table" and (tonumber(argument.array_job_id) or 0) > 0 then
            options[#options + 1] = string.format("--array %d", argument.array_job_id)
        end
    end
    local pipe = io.popen(table.concat(options, " ") .. " " .. table.concat(words, " ") .. ' 2>&1; echo "posthaste-exit=$?"')
    if not pipe then
        return false, "can't start " .. PROGRAM
    end
    local text = pipe:read("*a") or ""
    pipe:close()
    local said, code = text:match("^(.-)\n?posthaste%-exit=(%d+)\n$")
    if not code then
        return false, "posthaste slurm hook " .. name .. " was ended before it had finished"
    end
    return code == "0", said
end

local function answer(good, said)
    local line = said:gsub("%s+$", ""):gsub("\n", "; ")
    if #line > MESSAGE_MAX then
        -- Not in the middle of a letter.
        line = line:sub(1, MESSAGE_MAX):gsub("[\192-\255][\128-\191]*$", "")
    end
    if good then
        return slurm.SUCCESS, line
    end
    slurm.log_error("%s: %s", lua_script_name, line)
    return slurm.ERROR, line
end

-- Called at submission inside slurmctld: nothing but the script is looked at.
function slurm_bb_job_process(...)
    return answer(hook("job_process", ...))
end

-- The hook prints `NAME COUNT GRANULARITY` for each pool: so many pieces of so many bytes.
function slurm_bb_pools()
    local good, said = hook("pools")
    if not good then
        return answer(good, said)
    end
    local pools = {}
    for id, quantity, granularity in said:gmatch("([%w_%-]+) (%d+) (%d+)") do
        pools[#pools + 1] =
            string.format('{"id":"%s","quantity":%s,"granularity":%s}', id, quantity, granularity)
    end
    return slurm.SUCCESS, '{"pools":[' .. table.concat(pools, ",") .. "]}"
end

function slurm_bb_setup(...)
    return answer(hook("setup", ...))
end

-- From 24.05 on Slurm asks again and again whether data is there, so that no process waits for it.
function slurm_bb_data_in(...)
    if slurm.SLURM_BB_BUSY then
        return slurm_bb_test_data_in(...)
    end
    return answer(hook("data_in", ...))
end

function slurm_bb_test_data_in(...)
    return answer(hook("test_data_in", ...))
end

-- What the job asked of the pool is what it takes.
function slurm_bb_real_size()
    return slurm.SUCCESS
end

function slurm_bb_paths(...)
    return answer(hook("paths", ...))
end

function slurm_bb_pre_run(...)
    return answer(hook("pre_run", ...))
end

function slurm_bb_post_run(...)
    return answer(hook("post_run", ...))
end

function slurm_bb_data_out(...)
    if slurm.SLURM_BB_BUSY then
        return slurm_bb_test_data_out(...)
    end
    return answer(hook("data_out", ...))
end

function slurm_bb_test_data_out(...)
    return answer(hook("test_data_out", ...))
end

function slurm_bb_job_teardown(...)
    return answer(hook("job_teardown", ...))
end

function slurm_bb_get_status(...)
    local good, said = hook("get_status", ...)
    if said ~= "" then
        -- scontrol prints it as it is.
        said = said .. "\n"
    end
    return good and slurm.SUCCESS or slurm.ERROR, said
end
