-- posthaste's job submit plug-in for Slurm 22.05 and later: `--comment="posthaste:stage_in source=… destination=…;
-- stage_out …"` does what `#POSTHASTE` lines in the script do, and so do `#DW` and `#BB_LUA` lines that stage something, and
-- the forms of the papers. `posthaste slurm install --job-submit` puts it beside
-- slurm.conf and fills in the next two lines. A centre with a job_submit.lua of its own puts this beside it under another
-- name, begins its own with `dofile` of that, and calls `posthaste_submit(job_desc)` first.
local PROGRAM = "posthaste"
local CONFIG = "/etc/posthaste/slurm.toml"

local function quoted(word)
    return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- The directives that a comment stands for, or what is wrong in it.
local function directives(comment)
    local words = { quoted(PROGRAM), "slurm", "hook", "--config", quoted(CONFIG), "comment", "--", quoted(comment) }
    local pipe = io.popen(table.concat(words, " ") .. ' 2>&1; echo "posthaste-exit=$?"')
    if not pipe then
        return false, "can't start " .. PROGRAM
    end
    local text = pipe:read("*a") or ""
    pipe:close()
    local said, code = text:match("^(.-)\n?posthaste%-exit=(%d+)\n$")
    if not code then
        return false, "posthaste slurm hook comment was ended before it had finished"
    end
    return code == "0", said
end

local OTHERS = { DW = true, BB_LUA = true, Stageout = true, InterNode = true, CollabAcct = true, Deadline = true }

-- Slurm hands on lines that begin with `#POSTHASTE` alone, so directives in other words are put behind that.
local function with_marks(script)
    local marked = ("\n" .. script):gsub("\n#([%w_]+)([ \t][^\n]*)", function(mark, rest)
        local is_theirs = (mark == "DW" or mark == "BB_LUA") and not rest:find("^%s+stage_")
        if OTHERS[mark] and not is_theirs then
            return "\n#POSTHASTE #" .. mark .. rest
        end
    end)
    return marked:sub(2)
end

-- Writes what the comment says into the job; a comment that does not say `posthaste:` is left alone.
function posthaste_submit(job_desc)
    if job_desc.script then
        local marked = with_marks(job_desc.script)
        if marked ~= job_desc.script then
            job_desc.script = marked
        end
    end
    local comment = job_desc.comment
    if not comment or not comment:find("posthaste:", 1, true) then
        return slurm.SUCCESS
    end
    local good, said = directives(comment)
    if not good then
        slurm.log_user("%s", said)
        return slurm.ERROR
    end
    if said == "" then
        return slurm.SUCCESS
    end
    local script = job_desc.script
    if not script then
        -- srun and salloc.
        job_desc.burst_buffer = said
        return slurm.SUCCESS
    end
    -- Below the first line, which says what runs the script.
    local first, rest = script:match("^([^\n]*\n?)(.*)$")
    if first:sub(-1) ~= "\n" then
        first = first .. "\n"
    end
    job_desc.script = first .. said .. "\n" .. rest
    return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    return posthaste_submit(job_desc)
end

-- What a job reads is asked for once, when it is submitted.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    local comment = job_desc.comment
    if comment and comment ~= job_rec.comment and comment:find("posthaste:", 1, true) then
        slurm.log_user("posthaste: a comment asks for data when the job is submitted, not later")
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
