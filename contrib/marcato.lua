-- Priority of TCP segments for Wireshark and tshark: the TCP option of Marcato (docs/run.md).
--
--   tshark -X lua_script:contrib/marcato.lua -r FILE -Y 'marcato.priority == 0'
--
-- Fields: marcato.priority (0 to 4), marcato.form (rfc6994, short, authors), and marcato.malformed for other values.

local marcato = Proto("marcato", "Marcato priority")

local NAMES = { [0] = "P0", [1] = "P1", [2] = "P2", [3] = "P3", [4] = "P4" }
local EXID = 0xca75

local priority = ProtoField.uint8("marcato.priority", "Priority", base.DEC, NAMES)
local form = ProtoField.string("marcato.form", "Form")
local malformed = ProtoField.uint8("marcato.malformed", "Value that is no priority", base.DEC)
marcato.fields = { priority, form, malformed }

local options = Field.new("tcp.options")

-- Adds an option to the tree; `at` is the place of its value.
local function show(tree, range, at, name)
    local value = range(at, 1)
    local field = NAMES[value:uint()] and priority or malformed
    local branch = tree:add(marcato, value)
    branch:add(field, value)
    branch:add(form, name):set_generated()
end

function marcato.dissector(_, _, tree)
    for _, found in ipairs({ options() }) do
        local range, at = found.range, 0
        while at < range:len() do
            local kind = range(at, 1):uint()
            -- RFC 9293, section 3.2: EOL ends the list, and NOP has no length.
            if kind == 0 then break end
            if kind == 1 then
                at = at + 1
            else
                if at + 2 > range:len() then break end
                local length = range(at + 1, 1):uint()
                if length < 2 or at + length > range:len() then break end
                if kind == 254 and length == 5 and range(at + 2, 2):uint() == EXID then
                    show(tree, range, at + 4, "rfc6994")
                elseif kind == 254 and length == 3 then
                    show(tree, range, at + 2, "short")
                elseif kind == 253 and length == 4 then
                    show(tree, range, at + 2, "authors")
                end
                at = at + length
            end
        end
    end
end

register_postdissector(marcato)
