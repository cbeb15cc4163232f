//! Tests of invalid files, with their exact error messages.

use marcato_scenario::{Overrides, Scenario};

/// Valid file. Each case changes a part of it.
const RIGHT: &str = r#"name = "right"
duration = "30 s"
warm-up = "5 s"
seed = 1
nodes = ["client", "router", "server"]

[[link]]
name = "access"
between = ["client", "router"]
delay = "1 ms"
loss = { kind = "random", probability = 0.01 }
queue = { kind = "droptail", limit = "100 packets" }

[[link]]
name = "bottleneck"
between = ["router", "server"]
rate = "10 Mbit/s"
delay = "20 ms"
mtu = "1500 B"
queue = { kind = "codel", target = "5 ms", ecn = true }
changes = [{ at = "10 s", rate = "2 Mbit/s" }]

[[flow]]
name = "bulk"
kind = "tcp"
from = "client"
to = "server"
count = 2
stagger = "1 s"
congestion = "dctcp"
tcp = { ecn = true }

[[flow]]
name = "trickle"
kind = "udp"
from = "client"
to = "server" # of trickle
rate = "1 Mbit/s"
start = "1 s"
layer = "low"

[record]
series = ["link.bottleneck.queue", "flow.bulk.cwnd"]
pcap = ["access"]

[grid]
seeds = 3
vary = { "link.bottleneck.rate" = ["5 Mbit/s", "10 Mbit/s"] }
"#;

/// Invalid file: `RIGHT` with one error.
struct Case {
    what: &'static str,
    /// Replacements, from old to new text.
    but: &'static [(&'static str, &'static str)],
    /// Line, column and message of each fault.
    says: &'static [&'static str],
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case {
        what: "a rate without a unit",
        but: &[("rate = \"10 Mbit/s\"", "rate = 10")],
        says: &["17:8: `rate` is a rate and needs a unit: write \"10 Mbit/s\", not 10"],
    },
    Case {
        what: "a unit of another tongue",
        but: &[("rate = \"10 Mbit/s\"", "rate = \"10 Mbps\"")],
        says: &["17:8: `10 Mbps` is not a rate: did you mean \"10 Mbit/s\"?"],
    },
    Case {
        what: "a unit of another quantity",
        but: &[("delay = \"20 ms\"", "delay = \"20 kB\"")],
        says: &["18:9: `20 kB` is not a span of time: its unit is one of ns, us, ms, s, min, h"],
    },
    Case {
        what: "a number of another kind",
        but: &[("delay = \"20 ms\"", "delay = \"twenty ms\"")],
        says: &["18:9: `twenty ms` is not a span of time: give a number and a unit, for example \"20 ms\""],
    },
    Case {
        what: "a span without a unit",
        but: &[("duration = \"30 s\"", "duration = 30")],
        says: &["2:12: `duration` is a span of time and needs a unit: write \"30 s\", not 30"],
    },
    Case {
        what: "a string where a list belongs",
        but: &[("nodes = [\"client\", \"router\", \"server\"]", "nodes = \"client\"")],
        says: &["5:9: `nodes` is a list, not a string"],
    },
    Case {
        what: "a flag in quotes",
        but: &[("target = \"5 ms\", ecn = true", "target = \"5 ms\", ecn = \"true\"")],
        says: &["20:50: `ecn` is true or false: write true, without quotes"],
    },
    Case {
        what: "a count in quotes",
        but: &[("count = 2", "count = \"2\"")],
        says: &["28:9: `count` is a whole number: write 2, without quotes"],
    },
    Case {
        what: "a count of none",
        but: &[("count = 2", "count = 0")],
        says: &["28:9: `count` is 1 to 10000, not 0"],
    },
    Case {
        what: "a key that is mistyped",
        but: &[("delay = \"20 ms\"", "dealy = \"20 ms\"")],
        says: &["18:1: `dealy` is not a key of a link: did you mean `delay`?"],
    },
    Case {
        what: "a key in snake case",
        but: &[("warm-up = \"5 s\"", "warm_up = \"5 s\"")],
        says: &["3:1: `warm_up` is not a key of a scenario: did you mean `warm-up`?"],
    },
    Case {
        what: "a key that means nothing",
        but: &[("delay = \"20 ms\"", "colour = \"red\"")],
        says: &["18:1: `colour` is not a key of a link: there are `name`, `between`, `rate`, `trace`, `delay`, `framing`, `queue`, `loss`, `jitter`, `duplication`, `bleach-ecn`, `mtu`, `back`, `changes`"],
    },
    Case {
        what: "a key of the whole file below a header",
        but: &[("delay = \"20 ms\"", "delay = \"20 ms\"\nseed = 3")],
        says: &["19:1: `seed` is not a key of a link but of the scenario: put it above the first [table]"],
    },
    Case {
        what: "a key of another kind of flow",
        but: &[("rate = \"1 Mbit/s\"", "rate = \"1 Mbit/s\"\nsize = \"1 MB\"")],
        says: &["39:1: `size` is a key of a tcp flow, but this is a udp flow: leave it out"],
    },
    Case {
        what: "a key of another kind of queue",
        but: &[("kind = \"codel\", target = \"5 ms\"", "kind = \"droptail\", target = \"5 ms\"")],
        says: &["20:30: `target` is a key of a codel queue, but this is a droptail queue: leave it out", "20:47: `ecn` is a key of a codel queue, but this is a droptail queue: leave it out"],
    },
    Case {
        what: "a kind of flow that there is not",
        but: &[("kind = \"udp\"", "kind = \"utp\"")],
        says: &["35:8: `utp` is not a kind of flow: did you mean `udp`?"],
    },
    Case {
        what: "a kind of queue that there is not",
        but: &[("kind = \"codel\"", "kind = \"blue\"")],
        says: &["20:18: `blue` is not a kind of queue: there are `droptail`, `codel`, `fq-codel`, `crq`, `step-mark`, `red`, `pie`, `dualpi2`, `strict`, `policer`, `push-out`"],
    },
    Case {
        what: "a flow without a kind",
        but: &[("kind = \"udp\"\n", "")],
        says: &["33:1: this flow needs a `kind`: there are `tcp`, `udp`, `tcp-process`, `request-response`, `messages`, `quic`"],
    },
    Case {
        what: "a congestion control that there is not",
        but: &[("congestion = \"dctcp\"", "congestion = \"vegas\"")],
        says: &["30:14: `vegas` is not a kind of congestion: there are `reno`, `cubic`, `dctcp`, `prague`, `bbr`, `fast`, `copa`, `ledbat++`"],
    },
    Case {
        what: "a low layer of a kind that there is not",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = true, low-layer = \"ledbat\" }")],
        says: &["31:33: `ledbat` is not a kind of low layer: there are `none`, `paper`, `marcato`"],
    },
    Case {
        what: "no low layer that has a target",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = true, low-layer = { kind = \"none\", target = 0.01 } }")],
        says: &["31:50: `target` is a key of a low layer, but this is no low layer: leave it out"],
    },
    Case {
        what: "a low layer at one end",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = true, low-layer = \"paper\" }\ntcp-to = { low-layer = \"none\" }")],
        says: &["32:10: one end has a low layer and the other does not: both need one, or neither"],
    },
    Case {
        what: "a low layer that begins above its bound, never grows, and is never acknowledged",
        but: &[(
            "tcp = { ecn = true }",
            "tcp = { ecn = true, low-layer = { kind = \"marcato\", initial-window = 9, most-window = 8, target = 1.0, epoch = \"0 s\", ack-every = 5 } }",
        )],
        says: &[
            "31:70: `initial-window` is above `most-window`: lower it",
            "31:99: `target` is 0.000001 to 0.999, not 1",
            "31:112: `epoch` is 0: set it above 0",
            "31:131: `ack-every` is 1 to 4, not 5",
        ],
    },
    Case {
        what: "a crq queue without a rate to split, by a preset and in a class that there are not",
        but: &[("{ kind = \"droptail\", limit = \"100 packets\" }", "{ kind = \"strict\", low = { kind = \"crq\", sharing = \"split\", preset = \"ours\" } }")],
        says: &[
            "12:34: a class of a queue is droptail, codel, fq-codel, step-mark, red, pie, dualpi2 or policer, not crq",
            "12:60: only a link with a `rate` can be split: write \"weighted\" or \"strict\"",
            "12:78: `preset` is \"ours\": there are `marcato`, `authors`, `paper`",
        ],
    },
    Case {
        what: "two layers on one path",
        but: &[("kind = \"udp\"", "kind = \"quic\"\nlayered = true\nbulk = \"p4\""), ("rate = \"1 Mbit/s\"\nstart", "start")],
        says: &["36:11: two layers need a path each: for example paths = [[\"client\", \"server\"], { from = \"client\", to = \"server\", layer = \"low\" }]"],
    },
    Case {
        what: "a clock for packets that leave without one",
        but: &[("rate = \"1 Mbit/s\"", "rate = \"1 Mbit/s\"\ntick = \"2 ms\"")],
        says: &["39:8: `tick` applies to arrivals by a clock only: set arrivals = \"ticks\""],
    },
    Case {
        what: "packets that leave at random, on and off",
        but: &[("rate = \"1 Mbit/s\"", "rate = \"1 Mbit/s\"\narrivals = \"poisson\"\non = \"1 s\"\noff = \"1 s\"")],
        says: &["39:12: packets that are on and off leave at equal distances: leave `arrivals` out, or `on` and `off`"],
    },
    Case {
        what: "an fq-codel queue of no queues in a class of another",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"strict\", high = { kind = \"fq-codel\", flows = 0, quantum = \"0 B\" }, low = \"push-out\" }")],
        says: &[
            "20:64: `flows` is 1 to 65536, not 0",
            "20:77: `quantum` is 0: set it above 0",
            "20:92: a class of a queue is droptail, codel, fq-codel, step-mark, red, pie, dualpi2 or policer, not push-out",
        ],
    },
    Case {
        what: "a least share of a queue that has no priority over others",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"crq\", standard-least = 0.1 }")],
        says: &["20:42: only `sharing = \"strict\"` has a least share: give that, or leave this out"],
    },
    Case {
        what: "a place for young flows on a split link",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"crq\", sharing = \"split\", young-share = 0.5 }")],
        says: &["20:58: a split link has no place for young flows: leave this out, or share by weights"],
    },
    Case {
        what: "an allowance of young flows without a place, and one that nobody regains",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"crq\", preset = \"paper\", young-allowance = \"9 kB\", young-regain = \"7 kbit/s\" }")],
        says: &[
            "20:61: there is no place for young flows here: set `young-share`, or leave this out",
            "20:84: at 7 kbit/s a flow never regains its allowance: set 8 kbit/s or more",
            "20:84: there is no place for young flows here: set `young-share`, or leave this out",
        ],
    },
    Case {
        what: "a red queue whose thresholds are of two units",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"red\", max-threshold = \"9 kB\" }")],
        says: &["20:41: `min-threshold` and `max-threshold` have one unit: give packets or bytes in both"],
    },
    Case {
        what: "a red queue whose thresholds are the wrong way round",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"red\", max-threshold = \"5 packets\", weight = 0 }")],
        says: &["20:41: `max-threshold` is above `min-threshold`: give at least twice that", "20:63: `weight` is 0.000001 to 1, not 0"],
    },
    Case {
        what: "a pie queue that is late for good",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"pie\", update = \"2 h\" }")],
        says: &["20:34: `update` is at most 99 s, for example \"15 ms\""],
    },
    Case {
        what: "a step-mark queue whose threshold is its limit",
        but: &[("{ kind = \"codel\", target = \"5 ms\", ecn = true }", "{ kind = \"step-mark\", limit = \"65 packets\", threshold = \"100 packets\" }")],
        says: &["20:65: a threshold at or above the `limit` is never exceeded: set it below"],
    },
    Case {
        what: "dctcp without ecn",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = false }")],
        says: &["30:14: dctcp requires marks: set ecn = true in the flow's `tcp`, or choose another congestion control"],
    },
    Case {
        what: "no duration",
        but: &[("duration = \"30 s\"\n", "")],
        says: &["1:1: a scenario needs `duration`: state how long it runs, for example duration = \"30 s\""],
    },
    Case {
        what: "no nodes",
        but: &[("nodes = [\"client\", \"router\", \"server\"]\n", "")],
        says: &["1:1: a scenario needs `nodes`: state what they are called, for example nodes = [\"client\", \"server\"]; or use a [topology]"],
    },
    Case {
        what: "a link without ends",
        but: &[("between = [\"client\", \"router\"]\n", "")],
        says: &["7:1: a link needs `between`: state which two nodes it joins, for example between = [\"client\", \"server\"]"],
    },
    Case {
        what: "a link of three ends",
        but: &[("between = [\"client\", \"router\"]", "between = [\"client\", \"router\", \"server\"]")],
        says: &["9:11: a link joins two nodes, not 3"],
    },
    Case {
        what: "a node that there is not",
        but: &[("between = [\"client\", \"router\"]", "between = [\"client\", \"ruoter\"]")],
        says: &["9:22: there is no node `ruoter`: did you mean `router`?"],
    },
    Case {
        what: "a link from a node to itself",
        but: &[("between = [\"client\", \"router\"]", "between = [\"router\", \"router\"]")],
        says: &["9:22: a link joins two nodes, and this one joins `router` with itself"],
    },
    Case {
        what: "two links between the same nodes",
        but: &[("between = [\"client\", \"router\"]", "between = [\"server\", \"router\"]")],
        says: &["16:11: `access` joins the same two nodes, and nothing would go over this link: leave one out"],
    },
    Case {
        what: "two nodes of one name",
        but: &[("nodes = [\"client\", \"router\", \"server\"]", "nodes = [\"client\", \"router\", \"server\", \"client\"]")],
        says: &["5:40: there are two nodes `client`: rename one"],
    },
    Case {
        what: "two links of one name",
        but: &[("name = \"access\"", "name = \"bottleneck\"")],
        says: &["15:8: there are two links `bottleneck`: rename one", "44:9: there is no link `access`: there are `bottleneck`, `bottleneck`"],
    },
    Case {
        what: "two flows of one name",
        but: &[("name = \"trickle\"", "name = \"bulk\"")],
        says: &["34:8: there are two flows `bulk`: rename one"],
    },
    Case {
        what: "a flow named as an instance of another",
        but: &[("name = \"trickle\"", "name = \"bulk-2\"")],
        says: &["34:8: two flows would be called `bulk-2`: rename one"],
    },
    Case {
        what: "a name with a blank",
        but: &[("name = \"trickle\"", "name = \"the trickle\"")],
        says: &["34:8: ' ' cannot be in the name of a flow: letters, digits, - and _ can"],
    },
    Case {
        what: "a flow to itself",
        but: &[("to = \"server\" # of trickle", "to = \"client\" # of trickle")],
        says: &["37:6: a flow leads from one node to another, and this one from `client` to itself"],
    },
    Case {
        what: "a flow to a node that there is not",
        but: &[("to = \"server\" # of trickle", "to = \"serv\" # of trickle")],
        says: &["37:6: there is no node `serv`: there are `client`, `router`, `server`"],
    },
    Case {
        what: "ends that no links join",
        but: &[("nodes = [\"client\", \"router\", \"server\"]", "nodes = [\"client\", \"router\", \"server\", \"moon\"]"), ("to = \"server\" # of trickle", "to = \"moon\" # of trickle")],
        says: &["37:6: no links lead from `client` to `moon`: join them"],
    },
    Case {
        what: "a rate of zero",
        but: &[("rate = \"10 Mbit/s\"", "rate = \"0 Mbit/s\"")],
        says: &["17:8: `rate` is 0, and nothing would be sent: set it above 0"],
    },
    Case {
        what: "a rate and a trace",
        but: &[("rate = \"10 Mbit/s\"", "rate = \"10 Mbit/s\"\ntrace = \"lte.trace\"")],
        says: &["18:9: a link has a `rate` or a `trace`: leave one of them out"],
    },
    Case {
        what: "an mtu below the flow's segment",
        but: &[("mtu = \"1500 B\"", "mtu = \"1400 B\"")],
        says: &["31:7: the largest packet of this flow has 1500 B (`mss` of 1448 B and the headers), but `bottleneck` lets 1400 B through: lower `mss` to 1348 B, or raise the link's `mtu`"],
    },
    Case {
        what: "an option for which the mss leaves no room",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = true, mss = \"1441 B\", priority-option = \"rfc6994\" }")],
        says: &["31:27: the largest packet of this flow has 1501 B (`mss` of 1441 B and the headers), but `access` lets 1500 B through: lower `mss` to 1440 B, or raise the link's `mtu`"],
    },
    Case {
        what: "an mtu that no acknowledgement with sack blocks passes",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = true, mss = \"16 B\" }"), ("mtu = \"1500 B\"", "mtu = \"68 B\""), ("rate = \"1 Mbit/s\"", "rate = \"1 Mbit/s\"\npayload = \"40 B\"")],
        says: &["31:7: the largest packet of this flow has 80 B (an acknowledgement with all that it may tell), but `bottleneck` lets 68 B through: raise the link's `mtu` to 80 B"],
    },
    Case {
        what: "rack without sack",
        but: &[("tcp = { ecn = true }", "tcp = { ecn = true, sack = false }")],
        says: &["31:28: rack requires selective acknowledgements: set loss-detection = \"dup-thresh\" as well as sack = false"],
    },
    Case {
        what: "a threshold for bbr",
        but: &[("tcp = { ecn = true }", "tcp = { initial-ssthresh = 10 }"), ("congestion = \"dctcp\"", "congestion = \"bbr\"")],
        says: &["31:28: bbr has no slow start threshold: leave it out"],
    },
    Case {
        what: "a start after the end by chance",
        but: &[("stagger = \"1 s\"", "stagger = \"1 s\"\nstart-jitter = \"29.5 s\"")],
        says: &["30:16: the flow might start at or after the end of the run, 30 s: lower it"],
    },
    Case {
        what: "a stop before the start by chance",
        but: &[("start = \"1 s\"", "start = \"1 s\"\nstop = \"2 s\"\nstart-jitter = \"3 s\"")],
        says: &["41:16: the flow might stop before it starts: lower it, or set a later `stop`"],
    },
    Case {
        what: "a loop that takes no time",
        but: &[("delay = \"1 ms\"", "delay = \"0 ms\""), ("to = \"server\"\n", "to = \"router\"\n")],
        says: &["27:6: packets from `client` to `router` and back take no time, and this flow would never let time pass: give `access` a `delay` or a `rate`"],
    },
    Case {
        what: "a warm-up as long as the run",
        but: &[("warm-up = \"5 s\"", "warm-up = \"30 s\"")],
        says: &["3:11: the warm-up ends no earlier than the run, and nothing would be measured: shorten it"],
    },
    Case {
        what: "a change after the end",
        but: &[("at = \"10 s\"", "at = \"40 s\"")],
        says: &["21:19: a change at or after the end of the run, 30 s, has no effect"],
    },
    Case {
        what: "a change of nothing",
        but: &[("at = \"10 s\", rate = \"2 Mbit/s\"", "at = \"10 s\"")],
        says: &["21:12: this change has no effect: set a `rate`, a `delay`, a `loss`, a `queue`, or up = false"],
    },
    Case {
        what: "a duplication in per cent",
        but: &[("delay = \"20 ms\"", "delay = \"20 ms\"\nduplication = \"3 %\"")],
        says: &["19:15: `duplication` is a number: write 0.03, without quotes"],
    },
    Case {
        what: "more copies than packets",
        but: &[("delay = \"20 ms\"", "delay = \"20 ms\"\nduplication = 3")],
        says: &["19:15: `duplication` is 0 to 1, not 3"],
    },
    Case {
        what: "captures of nothing but the beginning of a header",
        but: &[("pcap = [\"access\"]", "pcap = [\"access\"]\nsnaplen = \"60 B\"")],
        says: &["45:11: `snaplen` is \"whole\", or 120 B to 65535 B, not 60 B"],
    },
    Case {
        what: "captures in a format that there is not",
        but: &[("pcap = [\"access\"]", "pcap = [\"access\"]\npcap-format = \"cap\"")],
        says: &["45:15: `pcap-format` is \"cap\": did you mean `pcap`?"],
    },
    Case {
        what: "a change of the order alone",
        but: &[("at = \"10 s\", rate = \"2 Mbit/s\"", "at = \"10 s\", up = true, reorder = false")],
        says: &["21:48: `reorder` is about packets with a shorter `delay`: give one, or leave it out"],
    },
    Case {
        what: "a change to a loss that is wrong",
        but: &[("at = \"10 s\", rate = \"2 Mbit/s\"", "at = \"10 s\", loss = { kind = \"random\", probability = 2 }")],
        says: &["21:67: `probability` is 0 to 1, not 2"],
    },
    Case {
        what: "a change to a queue that is wrong",
        but: &[("at = \"10 s\", rate = \"2 Mbit/s\"", "at = \"10 s\", queue = { kind = \"droptail\", limit = 50 }")],
        says: &["21:64: `limit` is a number of packets or bytes and needs a unit: write \"50 packets\", not 50"],
    },
    Case {
        what: "a change to a queue that pre-empts",
        but: &[("at = \"10 s\", rate = \"2 Mbit/s\"", "at = \"10 s\", queue = { kind = \"strict\", preempt = true }")],
        says: &["21:35: a link pre-empts from the beginning or never: give its `queue` and this one the same `preempt`"],
    },
    Case {
        what: "a change to a limit in time that differs by direction",
        but: &[("at = \"10 s\", rate = \"2 Mbit/s\"", "at = \"10 s\", queue = { kind = \"droptail\", limit = \"20 ms\" }"), ("rate = \"10 Mbit/s\"", "rate = \"10 Mbit/s\"\nback = { rate = \"5 Mbit/s\" }")],
        says: &["22:35: this limit in time is not the same in both directions, whose rates differ: give a change for each `way`"],
    },
    Case {
        what: "a flow that starts after the end",
        but: &[("start = \"1 s\"", "start = \"1 min\"")],
        says: &["39:9: the flow starts at or after the end of the run, 30 s: start it earlier"],
    },
    Case {
        what: "a probability above 1",
        but: &[("probability = 0.01", "probability = 1.5")],
        says: &["11:41: `probability` is 0 to 1, not 1.5"],
    },
    Case {
        what: "a probability in percent",
        but: &[("probability = 0.01", "probability = \"1 %\"")],
        says: &["11:41: `probability` is a number: write 0.01, without quotes"],
    },
    Case {
        what: "a limit without a unit",
        but: &[("limit = \"100 packets\"", "limit = 100")],
        says: &["12:38: `limit` is a number of packets or bytes and needs a unit: write \"100 packets\", not 100"],
    },
    Case {
        what: "a limit that holds no packet",
        but: &[("limit = \"100 packets\"", "limit = \"1 kB\"")],
        says: &["12:38: a limit of 1 kB cannot hold a packet of the link's mtu, 1500 B: raise it"],
    },
    Case {
        what: "a series of a link that there is not",
        but: &[("link.bottleneck.queue", "link.bottlenek.queue")],
        says: &["43:11: there is no link `bottlenek`: did you mean `bottleneck`?"],
    },
    Case {
        what: "a series that a link has not",
        but: &[("link.bottleneck.queue", "link.bottleneck.cwnd")],
        says: &["43:11: `cwnd` is not recorded of a link: there are `queue`, `queue-packets`, `queue-delay`, `throughput`, `utilisation`, `drops`, `losses`, `marks`"],
    },
    Case {
        what: "a capture of a link that there is not",
        but: &[("pcap = [\"access\"]", "pcap = [\"acess\"]")],
        says: &["44:9: there is no link `acess`: did you mean `access`?"],
    },
    Case {
        what: "a grid over what there is not",
        but: &[("\"link.bottleneck.rate\" =", "\"link.botleneck.rate\" =")],
        says: &["48:10: there is no link `botleneck`: did you mean `bottleneck`?"],
    },
    Case {
        what: "a grid over a key that there is not",
        but: &[("\"link.bottleneck.rate\" =", "\"link.bottleneck.rat\" =")],
        says: &["48:10: `rat` is not a key of a link: did you mean `rate`?"],
    },
    Case {
        what: "a grid with a value of the wrong kind",
        but: &[("[\"5 Mbit/s\", \"10 Mbit/s\"]", "[\"5 Mbit/s\", 10]")],
        says: &["48:48: `rate` is a rate and needs a unit: write \"10 Mbit/s\", not 10"],
    },
    Case {
        what: "a grid with a value that fits nothing else",
        but: &[("\"link.bottleneck.rate\" = [\"5 Mbit/s\", \"10 Mbit/s\"]", "\"link.bottleneck.mtu\" = [\"1500 B\", \"576 B\"]")],
        says: &["31:7: the largest packet of this flow has 1500 B (`mss` of 1448 B and the headers), but `bottleneck` lets 576 B through: lower `mss` to 524 B, or raise the link's `mtu` (in the runs with link.bottleneck.mtu = 576 B)", "33:1: the largest packet of this flow has 1228 B (its payload and 28 B of headers), but `bottleneck` lets 576 B through: lower `payload` to 548 B, or raise the link's `mtu` (in the runs with link.bottleneck.mtu = 576 B)"],
    },
    Case {
        what: "a grid of one value",
        but: &[("[\"5 Mbit/s\", \"10 Mbit/s\"]", "\"5 Mbit/s\"")],
        says: &["48:35: `link.bottleneck.rate` is varied over a list of values, not over a string: put it into [ ]"],
    },
    Case {
        what: "a grid of too many runs",
        but: &[("seeds = 3", "seeds = 9000")],
        says: &["46:1: this grid has 18000 runs, but at most 10000 are possible: vary less, or use fewer seeds"],
    },
    Case {
        what: "a grid over a whole link",
        but: &[("\"link.bottleneck.rate\" =", "\"link.bottleneck\" =")],
        says: &["48:10: state which setting of link `bottleneck`, for example link.bottleneck.rate"],
    },
    Case {
        what: "a priority in bare integers",
        but: &[("stagger = \"1 s\"", "stagger = \"1 s\"\npriority = 0")],
        says: &["30:12: `priority` is a priority: write \"p0\", not 0"],
    },
    Case {
        what: "what is not toml",
        but: &[("seed = 1", "seed == 1")],
        says: &["4:7: this is not TOML: extra `=`, expected nothing", "4:9: this is not TOML: unexpected key or value, expected newline, `#`"],
    },
    Case {
        what: "a key said twice",
        but: &[("seed = 1", "seed = 1\nseed = 2")],
        says: &["5:1: `seed` is given twice: remove one"],
    },
    Case {
        what: "a seed below zero",
        but: &[("seed = 1", "seed = -1")],
        says: &["4:8: `seed` is 0 to 9223372036854775807, not -1"],
    },
    Case {
        what: "a seed that no file can have",
        but: &[("seed = 1", "seed = 99999999999999999999")],
        says: &["4:8: `seed` is 0 to 9223372036854775807, not 99999999999999999999"],
    },
    Case {
        what: "more seeds than there are",
        but: &[("seed = 1", "seed = 9223372036854775806")],
        says: &["47:9: a seed is 0 to 9223372036854775807: from 9223372036854775806 on there are not 3, give a lower `seed`"],
    },
    Case {
        what: "a probability that is no number",
        but: &[("probability = 0.01", "probability = nan")],
        says: &["11:41: `probability` is 0 to 1, not nan"],
    },
    Case {
        what: "a probability beyond all numbers",
        but: &[("probability = 0.01", "probability = 1e400")],
        says: &["11:41: `probability` is 0 to 1, not 1e400"],
    },
    Case {
        what: "a span that is no number",
        but: &[("delay = \"20 ms\"", "delay = nan")],
        says: &["18:9: `delay` is a span of time, for example \"10 ms\", not nan"],
    },
    Case {
        what: "a span that is no number in quotes",
        but: &[("delay = \"20 ms\"", "delay = \"nan ms\"")],
        says: &["18:9: `nan ms` is not a span of time: give a number and a unit, for example \"20 ms\""],
    },
    Case {
        what: "a rate beyond all numbers",
        but: &[("rate = \"10 Mbit/s\"", "rate = 1e400")],
        says: &["17:8: `1e400` is more than can be counted"],
    },
    Case {
        what: "a count beyond all numbers",
        but: &[("count = 2", "count = 1e400")],
        says: &["28:9: `count` is 1 to 10000, not 1e400"],
    },
    Case {
        what: "a loss that is a number",
        but: &[("loss = { kind = \"random\", probability = 0.01 }", "loss = 0.02")],
        says: &["11:8: `loss` is a kind or a table with a `kind`, not a number: write { kind = \"random\", probability = 0.02 }"],
    },
    Case {
        what: "a loss that is a share",
        but: &[("loss = { kind = \"random\", probability = 0.01 }", "loss = \"3 %\"")],
        says: &["11:8: `loss` is a kind or a table with a `kind`, not \"3 %\": write { kind = \"random\", probability = 0.03 }"],
    },
    Case {
        what: "a queue that is a limit",
        but: &[("queue = { kind = \"droptail\", limit = \"100 packets\" }", "queue = \"60 kB\"")],
        says: &["12:9: `queue` is a kind or a table with a `kind`, not \"60 kB\": write { kind = \"droptail\", limit = \"60 kB\" }"],
    },
    Case {
        what: "a jitter that is a number",
        but: &[("delay = \"20 ms\"", "jitter = 3")],
        says: &["18:10: `jitter` is a kind or a table with a `kind`, not a number: write { kind = \"uniform\", most = \"5 ms\" }"],
    },
    Case {
        what: "a list of tables where a table belongs",
        but: &[("[record]", "[[record]]")],
        says: &["42:1: `record` is a table, not a list: write [record], in single brackets, and only once"],
    },
    Case {
        what: "one table where a list belongs",
        but: &[("changes = [{ at = \"10 s\", rate = \"2 Mbit/s\" }]", "changes = { rate = \"2 Mbit/s\" }")],
        says: &["21:11: `changes` is a list of tables, not one alone: put it into [ ]", "21:11: a change of a link needs `at`: state when, for example at = \"10 s\""],
    },
    Case {
        what: "what is mistyped, and what is wrong in it",
        but: &[("kind = \"codel\", target = \"5 ms\", ecn = true", "kind = \"coddel\", target = 5, enc = true")],
        says: &["20:18: `coddel` is not a kind of queue: did you mean `codel`?", "20:37: `target` is a span of time and needs a unit: write \"5 ms\", not 5", "20:40: `enc` is not a key of a codel queue: did you mean `ecn`?"],
    },
    Case {
        what: "a flow of a kind that there is not, and what is wrong in it",
        but: &[("kind = \"udp\"", "kind = \"sctp\""), ("start = \"1 s\"", "start = 40"), ("layer = \"low\"", "layer = \"lower\"")],
        says: &["35:8: `sctp` is not a kind of flow: there are `tcp`, `udp`, `tcp-process`, `request-response`, `messages`, `quic`", "39:9: `start` is a span of time and needs a unit: write \"40 s\", not 40", "40:9: `layer` is \"lower\": there are `high`, `low`"],
    },
    Case {
        what: "faults in the file, in what is varied and in how often it is recorded",
        but: &[
            ("delay = \"20 ms\"", "delay = 20"),
            ("series = [", "every = \"1 ns\"\nseries = ["),
            ("[\"5 Mbit/s\", \"10 Mbit/s\"]", "[5, \"10 Mbps\"], \"flow.bulk.count\" = [0, 2], \"link.acess.delay\" = [\"1 ms\"]"),
        ],
        says: &[
            "18:9: `delay` is a span of time and needs a unit: write \"20 ms\", not 20",
            "43:9: this makes 90000000000 samples, but at most 10000000 are possible: sample less often",
            "49:36: `rate` is a rate and needs a unit: write \"5 Mbit/s\", not 5",
            "49:39: `10 Mbps` is not a rate: did you mean \"10 Mbit/s\"?",
            "49:72: `count` is 1 to 10000, not 0",
            "49:79: there is no link `acess`: did you mean `access`?",
        ],
    },
    Case {
        what: "too many runs, and values that are wrong",
        but: &[("seeds = 3", "seeds = 9000"), ("[\"5 Mbit/s\", \"10 Mbit/s\"]", "[\"5 Mbit/s\", 10]")],
        says: &[
            "46:1: this grid has 18000 runs, but at most 10000 are possible: vary less, or use fewer seeds",
            "48:48: `rate` is a rate and needs a unit: write \"10 Mbit/s\", not 10",
        ],
    },
    Case {
        what: "several faults at once",
        but: &[("delay = \"20 ms\"", "delay = 20"), ("kind = \"udp\"", "kind = \"upd\""), ("seeds = 3", "seeds = 0"), ("pcap = [\"access\"]", "pcap = [\"bottleneckk\"]")],
        says: &["18:9: `delay` is a span of time and needs a unit: write \"20 ms\", not 20", "35:8: `upd` is not a kind of flow: did you mean `udp`?", "44:9: there is no link `bottleneckk`: did you mean `bottleneck`?", "47:9: `seeds` is 1 to 10000, not 0"],
    },
];

/// Returns the faults of a text, each with line and column.
fn faults(text: &str, overrides: &Overrides) -> Vec<String> {
    match Scenario::parse_with("wrong.toml", text, overrides) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .faults()
            .iter()
            .map(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.problem))
            .collect(),
    }
}

#[test]
fn nothing_is_wrong_with_what_is_right() {
    assert_eq!(faults(RIGHT, &Overrides::default()), [""; 0]);
}

#[test]
fn errors_have_exactly_the_documented_text() {
    for Case { what, but, says } in CASES {
        let mut text = RIGHT.to_owned();
        for (from, to) in *but {
            assert_eq!(text.matches(from).count(), 1, "{what}: {from}");
            text = text.replace(from, to);
        }
        assert_eq!(faults(&text, &Overrides::default()), *says, "{what}");
    }
}

#[test]
fn a_fault_is_shown_with_its_line() {
    let text = RIGHT.replace("\"router\", \"server\"]\nrate", "\"ruoter\", \"server\"]\nrate");
    let error = Scenario::parse("shown.toml", &text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shown.toml:16:12: there is no node `ruoter`: did you mean `router`?\n  \
           16 | between = [\"ruoter\", \"server\"]\n     \
              |            ^^^^^^^^\n"
    );
}

#[test]
fn a_setting_is_refused_where_it_was_said() {
    for (set, says) in [
        (
            "link.bottleneck.rate",
            "1:1: a setting is KEY=VALUE, for example link.bottleneck.rate=\"5 Mbit/s\"",
        ),
        ("link.bottleneck.rate=5", "1:22: `rate` is a rate and needs a unit: write \"5 Mbit/s\", not 5"),
        ("link.botleneck.rate=5 Mbit/s", "1:1: there is no link `botleneck`: did you mean `bottleneck`?"),
        ("link.bottleneck.raet=5 Mbit/s", "1:1: `raet` is not a key of a link: did you mean `rate`?"),
        (
            "link.bottleneck=5 Mbit/s",
            "1:1: state which setting of link `bottleneck`, for example link.bottleneck.rate",
        ),
        ("flow=x", "1:1: `flow` is a whole table: state which of its settings, for example flow.bulk.start"),
        ("grid.seeds=3", "1:1: seeds and grids are not set like this: write `seeds` in [grid], or --seed"),
        ("seed=3", "1:1: seeds and grids are not set like this: write `seeds` in [grid], or --seed"),
        ("duration..x=3", "1:1: `duration..x` is not a key: a part of it is empty"),
        (
            "link.bottleneck.queue.kind=blue",
            "1:28: `blue` is not a kind of queue: there are `droptail`, `codel`, `fq-codel`, `crq`, `step-mark`, `red`, `pie`, `dualpi2`, `strict`, `policer`, `push-out`",
        ),
        (
            "link.bottleneck.changes.2.at=3 s",
            "1:1: `changes` is a list: state which entry, 1 to 1, for example changes.1",
        ),
        ("flow.bulk.count.x=3", "1:1: `count` is a number, which has no keys"),
    ] {
        let overrides = Overrides { set: vec![set.to_owned()], ..Overrides::default() };
        assert_eq!(faults(RIGHT, &overrides), [says], "{set}");
    }
    let overrides = Overrides { set: vec!["link.bottleneck.rate=5".to_owned()], ..Overrides::default() };
    let error = Scenario::parse_with("right.toml", RIGHT, &overrides).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--set link.bottleneck.rate: `rate` is a rate and needs a unit: write \"5 Mbit/s\", not 5\n   \
           1 | link.bottleneck.rate=5\n     \
             |                      ^\n"
    );
}

#[test]
fn settings_reach_into_tables_lists_and_shorthands() {
    let set = [
        "link.bottleneck.queue.kind=droptail",
        "link.access.loss.probability=0.5",
        "link.bottleneck.changes.1.at=3 s",
        "flow.bulk.congestion=cubic",
        "flow.bulk.congestion.hystart=false",
        "record.every=1 s",
    ];
    let text =
        RIGHT.replace("queue = { kind = \"codel\", target = \"5 ms\", ecn = true }", "queue = \"codel\"");
    let overrides = Overrides { set: set.map(ToOwned::to_owned).to_vec(), ..Overrides::default() };
    let scenario =
        Scenario::parse_with("right.toml", &text, &overrides).unwrap_or_else(|error| panic!("{error}"));
    let experiment = scenario.experiment();
    let bottleneck = experiment.link("bottleneck").unwrap();
    assert_eq!(bottleneck.there.queue, marcato_scenario::queue::Queue::default());
    assert_eq!(bottleneck.changes[0].at, marcato_units::Time::from_secs(3));
    let loss = &experiment.link("access").unwrap().there.loss;
    assert_eq!(
        *loss,
        marcato_scenario::link::Loss::Random(marcato_scenario::link::RandomLoss { probability: 0.5 })
    );
    let tcp = experiment.flow("bulk").unwrap().kind.tcp().unwrap();
    let cubic = marcato_scenario::tcp::Cubic { hystart: false, ..Default::default() };
    let cubic = marcato_scenario::tcp::Congestion::Cubic(cubic);
    assert_eq!((&tcp.from.congestion, &tcp.to.congestion), (&cubic, &cubic));
    assert_eq!(experiment.record.every, marcato_units::Duration::from_secs(1));
}

#[test]
fn a_key_that_is_set_is_not_varied() {
    let all = Scenario::parse("right.toml", RIGHT).unwrap();
    assert_eq!(all.count(), 6);
    let overrides = Overrides {
        set: vec!["link.bottleneck.rate=7 Mbit/s".to_owned()],
        seed: Some(9),
        ..Overrides::default()
    };
    let one = Scenario::parse_with("right.toml", RIGHT, &overrides).unwrap();
    let runs: Vec<_> = one.runs().collect();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].id, "rate=7Mbit-s,seed=9");
    assert_eq!(
        one.one_line(&runs[0]),
        "marcato sim right.toml --set link.bottleneck.rate=\"7 Mbit/s\" --seed 9"
    );
    assert_eq!(one.experiment().seed, marcato_units::Seed::new(9));
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let text = "#".repeat(marcato_scenario::limit::MAX_FILE + 1);
    let error = Scenario::parse("long.toml", &text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "long.toml: the file has 1048577 bytes, but at most 1048576 are possible\n"
    );
}

#[test]
fn the_first_of_many_faults_are_shown_and_the_rest_counted() {
    let keys: String = (0..80).map(|n| format!("mystery-{n} = 1\n")).collect();
    let error = Scenario::parse("many.toml", &(keys + RIGHT)).unwrap_err();
    assert_eq!(error.faults().len(), marcato_scenario::limit::MAX_FAULTS);
    assert!(error.to_string().ends_with("and 30 more\n"), "{error}");
}

#[test]
fn a_trace_that_is_not_there_is_missed() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let overrides =
        Overrides { set: vec!["link.radio.trace=traces/make.py".to_owned()], ..Overrides::default() };
    let error = Scenario::load(&directory.join("cellular.toml"), &overrides).unwrap_err();
    assert_eq!(
        error.faults()[0].problem,
        "the trace `traces/make.py`: line 1: \"#!/usr/bin/env python3\" is no whole number of ms from 0 to 4294967295: write one, and nothing else"
    );
    let error = Scenario::load(&directory.join("nowhere.toml"), &Overrides::default()).unwrap_err();
    assert_eq!(error.faults()[0].line, 0);
}

#[test]
fn tables_in_single_brackets_are_read_all_the_same() {
    let one = r#"
name = "one"
duration = "10 s"
nodes = ["client", "server"]

[link]
between = ["client", "server"]
rate = 10

[flow]
name = "bulk"
kind = "tcp"
from = "client"
to = "serve"
"#;
    assert_eq!(
        faults(one, &Overrides::default()),
        [
            "6:1: `link` is a list of tables: write [[link]] above each, in double brackets",
            "8:8: `rate` is a rate and needs a unit: write \"10 Mbit/s\", not 10",
            "10:1: `flow` is a list of tables: write [[flow]] above each, in double brackets",
            "14:6: there is no node `serve`: did you mean `server`?",
        ]
    );
    let two = format!("{one}\n[flow]\nname = \"other\"\n");
    let said = faults(&two, &Overrides::default()).join("\n");
    assert!(said.contains("there are several tables `flow`: write [[flow]] above each"), "{said}");
    assert!(said.contains("8:8: `rate` is a rate and needs a unit"), "{said}");
}

#[test]
fn names_are_not_judged_where_a_topology_is_wrong() {
    let text = r#"
name = "wrong"
duration = "10 s"
topology = { kind = "dumbel", rate = "10 Mbit/s", pairs = "2" }

[[flow]]
name = "bulk"
kind = "tcp"
from = "client-2"
to = "server-2"
start = "20 s"
"#;
    let set = vec!["link.bottleneck.delay=5".to_owned()];
    assert_eq!(
        faults(text, &Overrides { set, ..Overrides::default() }),
        [
            "4:21: `dumbel` is not a kind of topology: did you mean `dumbbell`?",
            "4:59: `pairs` is a whole number: write 2, without quotes",
            "11:9: the flow starts at or after the end of the run, 10 s: start it earlier",
            "1:23: `delay` is a span of time and needs a unit: write \"5 ms\", not 5",
        ]
    );
}

#[test]
fn a_fault_that_a_setting_brings_names_the_setting() {
    let set = |set: &str| faults(RIGHT, &Overrides { set: vec![set.to_owned()], ..Overrides::default() });
    assert_eq!(
        set("duration=5 s"),
        [
            "3:11: the warm-up ends no earlier than the run, and nothing would be measured: shorten it (with --set \
          duration=5 s)"
        ]
    );
    // A fault that the file has anyway is not attributed to the setting.
    let wrong = RIGHT.replace("layer = \"low\"", "layer = \"lower\"");
    let overrides = Overrides { set: vec!["record.every=1 s".to_owned()], ..Overrides::default() };
    assert_eq!(faults(&wrong, &overrides), ["40:9: `layer` is \"lower\": there are `high`, `low`"]);
}

#[test]
fn a_seed_from_elsewhere_has_the_same_bound() {
    let most = marcato_units::Seed::MAX;
    let with = |seed| faults(RIGHT, &Overrides { set: Vec::new(), seed: Some(seed), ..Overrides::default() });
    assert_eq!(with(most), [""; 0]);
    let says = format!("1:1: a seed is 0 to {most}, not {}", most + 1);
    assert_eq!(with(most + 1), [says]);
    // The highest possible seeds are accepted.
    let text = RIGHT.replace("seed = 1", &format!("seed = {}", most - 2));
    assert_eq!(Scenario::parse("last.toml", &text).unwrap().runs().last().unwrap().seed.get(), most);
}

/// Faults that cannot be detected while another fault exists.
///
/// In files of a case whose name contains the first text, faults of other cases that contain the
/// second text are hidden.
const HIDDEN: &[(&str, &str)] = &[
    // Events after the end of the run.
    ("a span without a unit", "the run"),
    ("no duration", "the run"),
    ("a span without a unit", "samples"),
    ("no duration", "samples"),
    // Ends of links.
    ("a string where a list belongs", "node"),
    ("no nodes", "node"),
    ("a link", "no links lead"),
    ("a node that there is not", "no links lead"),
    ("two links between", "no links lead"),
    // The packets that fit a path depend on links, routes and options together.
    ("", "packet of this flow"),
    ("", "take no time"),
    // The number of instances of a flow, and of series.
    ("a count", "two flows would be called"),
    ("a count", "samples"),
    ("a count", "might start at or after the end"),
    ("two flows of one name", "samples"),
    ("a series", "samples"),
    ("a list of tables", "samples"),
    // Keys of some kinds only.
    ("a flow without a kind", ""),
    ("a flow of a kind that there is not", ""),
    ("a kind of queue that there is not", "`ecn`"),
    ("a key of another kind of queue", "`ecn`"),
    ("a congestion control that there is not", "dctcp"),
    // Names listed by other messages.
    ("two links of one name", "link"),
    ("two links between", "`access`"),
    ("a capture", "there is no link `access`"),
    ("several faults at once", "there is no link `access`"),
    // Faults of a grid that depend on its keys, and the number of its runs, which depends on values
    // and seeds.
    ("a grid", "there is no link"),
    ("a grid", "`rat` is not a key"),
    ("a grid", "state which setting"),
    ("a grid", "is a rate and needs a unit"),
    ("a grid", "10 Mbps"),
    ("a grid", "varied over a list"),
    ("a grid", "this grid has"),
    ("more seeds", "this grid has"),
    ("faults in the file", "this grid has"),
    ("seeds", "a seed is"),
    ("too many runs", "a seed is"),
    ("several faults at once", "a seed is"),
];

#[test]
fn two_things_that_are_wrong_are_both_told() {
    let faults_of = |text: &str| -> Vec<String> {
        let place_and_problem = |fault: String| fault.splitn(3, ':').nth(2).map(ToOwned::to_owned);
        faults(text, &Overrides::default()).into_iter().filter_map(place_and_problem).collect()
    };
    let apply = |text: &str, case: &Case| {
        case.but.iter().try_fold(text.to_owned(), |text, (from, to)| {
            (text.matches(from).count() == 1).then(|| text.replace(from, to))
        })
    };
    let hidden = |by: &Case, problem: &str| {
        HIDDEN.iter().any(|(what, part)| by.what.contains(what) && problem.contains(part))
    };
    let (mut pairs, mut missing) = (0, Vec::new());
    // After an error of TOML's grammar, no further fault is detected.
    let cases = CASES.iter().filter(|case| case.what != "what is not toml");
    let cases: Vec<(&Case, Vec<String>, String)> =
        cases.filter_map(|case| apply(RIGHT, case).map(|text| (case, faults_of(&text), text))).collect();
    for (index, (one, alone, with_one)) in cases.iter().enumerate() {
        for (other, other_alone, with_other) in &cases[index + 1..] {
            // The two replacements must be independent.
            let Some(both) = apply(with_one, other) else { continue };
            if apply(with_other, one).as_ref() != Some(&both) {
                continue;
            }
            pairs += 1;
            let said = faults_of(&both);
            for (case, alone, beside) in [(one, alone, other), (other, other_alone, one)] {
                for problem in alone {
                    let told = said.contains(problem) || hidden(beside, problem);
                    if !told {
                        missing.push(format!("{} | {}: {problem}", case.what, beside.what));
                    }
                }
            }
        }
    }
    assert!(pairs > 3000, "{pairs}");
    assert_eq!(missing, [""; 0]);
}

#[test]
fn bytes_that_are_no_text_are_refused_at_the_first_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("binary.toml");
    let said = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let error = Scenario::load(&file, &Overrides::default()).unwrap_err();
        let said =
            |fault: &marcato_scenario::Fault| format!("{}:{}: {}", fault.line, fault.column, fault.problem);
        error.faults().iter().map(said).collect::<Vec<_>>().join("\n")
    };
    let remedy = "is not UTF-8 here: save it as UTF-8, or give the path of a scenario";
    assert_eq!(said(b"name = \"\xe4\"\n"), format!("1:9: this is not text, for the byte 0xe4 {remedy}"));
    let latin = "name = \"ä\"\n# ä\u{f6}".as_bytes();
    assert_eq!(
        said(&[latin, b"\xf6\n\x00"].concat()),
        format!("2:5: this is not text, for the byte 0xf6 {remedy}")
    );
    // UTF-16, and binary data.
    assert_eq!(said(b"\xff\xfen\x00"), format!("1:1: this is not text, for the byte 0xff {remedy}"));
    assert_eq!(said(b"\x7fELF\x02\x80"), format!("1:6: this is not text, for the byte 0x80 {remedy}"));
    // The same holds for a trace.
    std::fs::write(directory.path().join("lte.trace"), b"1\n2\xff\n").unwrap();
    let text = RIGHT.replace("rate = \"10 Mbit/s\"\n", "trace = \"lte.trace\"\n");
    let said = said(text.as_bytes());
    assert!(said.contains(
        "the trace `lte.trace`: line 2, column 2: this is not text, for the byte 0xff is not UTF-8 here"
    ));
}

#[test]
fn a_scenario_from_the_standard_input_is_named_so() {
    let scenario = Scenario::load_from(RIGHT.as_bytes(), &Overrides::default()).unwrap();
    let run = scenario.run(0).unwrap();
    assert_eq!(scenario.file(), "-");
    assert_eq!(scenario.one_line(&run), "marcato sim - --set link.bottleneck.rate=\"5 Mbit/s\" --seed 1");
    let error = Scenario::load_from(&b"name = 3"[..], &Overrides::default()).unwrap_err();
    assert!(error.to_string().starts_with("<stdin>:1:8: `name` is a string"), "{error}");
}
