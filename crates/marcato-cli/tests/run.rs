//! Tests of `marcato run` in network namespaces: marks are counted by the classes of an HTB that sorts by code point.
//!
//! They need root, and are skipped without.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use marcato_kernel::MARKS_OBJECT;
use marcato_testing::{Need, absent};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_marcato");

/// Returns whether this machine lacks something that runs need, which then counts as skipped.
fn is_impossible() -> bool {
    absent!(Need::Root, Need::Programs(MARKS_OBJECT), Need::Program("bash"), Need::Program("setsid"))
}

/// Runs a program with words that no shell reads.
fn did(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

fn marcato(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

/// Mount point of cgroup v2, as the kernel lists it.
fn hierarchy() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    PathBuf::from(line.split(' ').nth(1).unwrap())
}

/// Groups below a directory that a run of this number has made.
fn groups(below: &Path, run: u32) -> usize {
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .map(|entry| {
            let own = entry.file_name().to_str() == Some(&format!("marcato-run.{run}"));
            usize::from(own) + groups(&entry.path(), run)
        })
        .sum()
}

/// Starts a shell with marks, apart from any terminal, and waits until it says something. It ignores no signal: a test
/// that runs in the background of a script would pass on that it ignores SIGINT, which `marcato run` respects.
fn started(script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new("env")
        .args(["--default-signal", "setsid", PROGRAM, "run", "--priority", "p0", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    (child, lines)
}

#[test]
fn the_status_is_the_commands_and_nothing_is_left() {
    if is_impossible() {
        return;
    }
    for (command, status) in
        [(&["sh", "-c", "exit 7"][..], 7), (&["sh", "-c", "kill -9 $$"], 137), (&["no-such-command"], 2)]
    {
        let child = Command::new(PROGRAM)
            .args(["run", "--priority", "p0", "--"])
            .args(command)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let run = child.id();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{command:?}: {err}");
        assert_eq!(err.contains("`no-such-command` cannot be run"), status == 2, "{err}");
        assert_eq!(groups(&hierarchy(), run), 0, "{command:?}");
    }
}

#[test]
fn signals_reach_the_command_and_nothing_is_left() {
    if is_impossible() {
        return;
    }
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let script = format!("sleep 300 & trap \"kill $!; exit 5\" {signal}; echo ready; wait");
        let (mut child, _lines) = started(&script);
        assert_eq!(groups(&hierarchy(), child.id()), 1, "{signal}");
        did("kill", &format!("-{signal} {}", child.id()));
        assert_eq!(child.wait().unwrap().code(), Some(5), "{signal}");
        assert_eq!(groups(&hierarchy(), child.id()), 0, "{signal}");
    }
}

#[test]
fn processes_that_outlive_the_command_go_on_elsewhere() {
    if is_impossible() {
        return;
    }
    let output =
        marcato(&["run", "--priority", "p0", "--", "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"]);
    let sleeper = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert_eq!(output.status.code(), Some(0));
    let group = std::fs::read_to_string(format!("/proc/{sleeper}/cgroup")).unwrap();
    did("kill", &format!("-9 {sleeper}"));
    assert!(!group.contains("marcato-run"), "{group}");
    assert_eq!(
        group.lines().find(|line| line.starts_with("0::")),
        std::fs::read_to_string("/proc/self/cgroup").unwrap().lines().find(|line| line.starts_with("0::"))
    );
}

#[test]
fn the_list_tells_killed_runs_and_the_next_run_removes_them() {
    if is_impossible() {
        return;
    }
    let (mut child, _lines) = started("echo ready; exec sleep 300");
    let run = child.id();
    let row = || {
        let listed = marcato(&["run", "--list", "--format", "json"]);
        let text = String::from_utf8(listed.stdout).unwrap();
        let mut rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.find(|row| row["run"] == run)
    };
    let before = row().unwrap();
    assert_eq!(before["marks"], true, "{before}");
    assert!(before["command"].as_str().unwrap().contains("run --priority p0 -- sh -c"), "{before}");
    let sleeper = before["processes"][0].to_string();
    did("kill", &format!("-9 {run}"));
    child.wait().unwrap();
    let after = row().unwrap();
    assert_eq!((&after["marks"], &after["processes"]), (&Value::from(false), &before["processes"]));
    let table = String::from_utf8(marcato(&["run", "--list"]).stdout).unwrap();
    assert!(table.contains("(killed: new sockets have no mark)"), "{table}");
    // While a process of it goes on, the group stays.
    assert!(marcato(&["run", "--priority", "p0", "--", "true"]).status.success());
    assert!(row().is_some());
    did("kill", &format!("-9 {sleeper}"));
    // The kernel takes its time to end it.
    let is_gone = || marcato(&["run", "--priority", "p0", "--", "true"]).status.success() && row().is_none();
    assert!((0..1000).any(|_| is_gone()));
}

#[test]
fn without_privileges_the_message_names_what_to_do() {
    if absent!(Need::Root, Need::Program("setpriv")) {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", "--no-new-privs"])
        .args([PROGRAM, "run", "--priority", "p0", "--", "true"])
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    for text in ["CAP_BPF: run as root", "CAP_NET_ADMIN", "marcato doctor"] {
        assert!(err.contains(text), "{text}: {err}");
    }
}

#[test]
fn faults_of_options_and_rules_are_told_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nport = 22\npriority = \"p9\"\n").unwrap();
    let rules = rules.to_str().unwrap();
    for (words, why) in [
        (&["run", "--", "true"][..], "<--priority <P>|--dscp <NAME>|--rules <FILE>|--list>"),
        (&["run", "--priority", "p0"], "COMMAND"),
        (&["run", "--priority", "p0", "--dscp", "ef", "--", "true"], "cannot be used with"),
        (&["run", "--dscp", "fast", "--", "true"], "write a name such as ef"),
        (&["run", "--priority", "p0", "--code-point", "p0", "--", "true"], "such as p0=ef"),
        (&["run", "--dscp", "ef", "--option", "--", "true"], "cannot be used with"),
        (&["run", "--option", "--", "true"], "<--priority <P>"),
        (&["run", "--priority", "p0", "--option-peers", "x", "--", "true"], "--option"),
        (&["run", "--rules", rules, "--", "true"], "line 3"),
        (&["run", "--rules", "no-such-file", "--", "true"], "the rules cannot be read: no-such-file"),
    ] {
        let output = marcato(words);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains(why), "{words:?}: {err}");
    }
}

#[test]
fn peers_that_refuse_the_option_are_kept_for_the_next_run() {
    if is_impossible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("peers");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}", listener.local_addr().unwrap().port());
    let kept = || std::fs::read_to_string(&file).unwrap();
    let run = || {
        let path = file.to_str().unwrap();
        let options =
            ["run", "--priority", "p1", "--option", "--option-peers", path, "--", "bash", "-c", &script];
        let output = marcato(&options);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{err}");
        assert!(
            err.contains("note: 1 connections had no option, as their peers do not know it; 0 had it"),
            "{err}"
        );
        listener.accept().unwrap();
    };
    run();
    let first = kept();
    assert!(first.starts_with("127.0.0.1 ") && first.lines().count() == 1, "{first}");
    // A time of the past is over, and one far ahead is that of a clock that was wrong.
    std::fs::write(&file, "127.0.0.1 99999999999\n192.0.2.1 1\n").unwrap();
    run();
    assert!(kept().starts_with("127.0.0.1 ") && kept().lines().count() == 1, "{}", kept());
    std::fs::write(&file, "nobody\n").unwrap();
    let output = marcato(&[
        "run",
        "--priority",
        "p1",
        "--option",
        "--option-peers",
        file.to_str().unwrap(),
        "--",
        "true",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("line 1 is no peer"));
}

/// Client, router and server as namespaces. The router sorts packets to the server by code point, with priorities.
struct Net {
    names: [String; 3],
}

/// Classes of the router: for AF41 and AF21, for all others, and for LE.
const CLASSES: [&str; 3] = ["1:10", "1:20", "1:30"];

impl Net {
    fn new(name: &str, rate: &str) -> Option<Self> {
        if is_impossible() || absent!(Need::Program("tc"), Need::Program("nsenter")) {
            return None;
        }
        let names =
            ["client", "router", "server"].map(|end| format!("mr-{name}-{end}-{}", std::process::id()));
        let net = Self { names };
        let [client, router, server] = &net.names;
        for end in &net.names {
            did("ip", &format!("netns add {end}"));
        }
        did("ip", &format!("link add eth0 netns {client} type veth peer name lan netns {router}"));
        did("ip", &format!("link add eth0 netns {server} type veth peer name wan netns {router}"));
        for (end, device, number, gateway) in [
            (client, "eth0", "7.2", true),
            (router, "lan", "7.1", false),
            (router, "wan", "8.1", false),
            (server, "eth0", "8.2", true),
        ] {
            let (subnet, host) = number.split_once('.').unwrap();
            did("ip", &format!("-n {end} link set {device} addrgenmode none"));
            did("ip", &format!("-n {end} link set {device} up gso_max_segs 1"));
            did("ip", &format!("-n {end} addr add 10.9.{number}/24 dev {device}"));
            did("ip", &format!("-n {end} addr add fd0{subnet}::{host}/64 dev {device} nodad"));
            // A router asks for neighbours from an address of the link.
            did("ip", &format!("-n {end} addr add fe80::{host}/64 dev {device} nodad"));
            if gateway {
                did("ip", &format!("-n {end} route add default via 10.9.{subnet}.1"));
                did("ip", &format!("-n {end} route add default via fd0{subnet}::1"));
            }
        }
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let set = format!("echo 1 > /proc/sys/net/{key}");
            assert!(net.within(1, &["sh", "-c", &set]).status().unwrap().success());
        }
        // Rates of classes are served before priorities count: the least possible.
        let mut commands = vec!["qdisc add dev wan root handle 1: htb default 40".to_owned()];
        commands.push(format!("class add dev wan parent 1: classid 1:1 htb rate {rate} ceil {rate}"));
        // The last one has what finds neighbours: it comes at any time.
        for (priority, class) in CLASSES.into_iter().chain(["1:40"]).enumerate() {
            let minor = class.trim_start_matches("1:");
            commands.push(format!(
                "class add dev wan parent 1:1 classid {class} htb rate 8bit ceil {rate} prio {priority} quantum 1514"
            ));
            commands.push(format!("qdisc add dev wan parent {class} handle {minor}: pfifo limit 100"));
        }
        let to = "filter add dev wan parent 1: protocol";
        // ICMPv6, also behind options for each hop.
        for protocol in [58, 0] {
            commands.push(format!("{to} ipv6 prio 1 u32 match ip6 protocol {protocol} 0xff flowid 1:40"));
        }
        for (field, class) in [("0x88", "1:10"), ("0x48", "1:10"), ("0x00", "1:20"), ("0x04", "1:30")] {
            commands.push(format!("{to} ip prio 3 u32 match ip dsfield {field} 0xfc flowid {class}"));
            commands.push(format!("{to} ipv6 prio 2 u32 match ip6 priority {field} 0xfc flowid {class}"));
        }
        for command in commands {
            did("tc", &format!("-n {router} {command}"));
        }
        Some(net)
    }

    /// Command in a namespace. `ip netns exec` would hide the hierarchy of control groups.
    fn within(&self, end: usize, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/var/run/netns/{}", self.names[end])).args(words);
        command
    }

    /// Packets that each class has sent.
    fn packets(&self) -> [u64; 3] {
        let text = did("tc", &format!("-n {} -s class show dev wan", self.names[1]));
        CLASSES.map(|class| {
            let of = text.split("class htb ").find(|part| part.starts_with(&format!("{class} "))).unwrap();
            of.split("bytes ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
        })
    }

    /// Runs `marcato` on the client with these words, and returns the packets of each class meanwhile.
    fn sorted(&self, words: &[&str]) -> [u64; 3] {
        let before = self.packets();
        let output = self.within(0, &[PROGRAM]).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let after = self.packets();
        std::array::from_fn(|class| after[class] - before[class])
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Sends a datagram and the first packet of a connection, which nobody accepts, to either address of the server.
const SEND: &str = "for to in 10.9.8.2 fd08::2; do for by in udp tcp; do echo > /dev/$by/$to/9; done; done 2>/dev/null; true";

#[test]
fn a_router_sorts_packets_by_the_marks_of_a_command() {
    let Some(net) = Net::new("sort", "100mbit") else { return };
    // Neighbours are asked for once, in the class of all others.
    assert!(net.within(0, &["bash", "-c", SEND]).status().unwrap().success());
    let run = |options: &[&str], script: &str| {
        net.sorted(&[&["run"], options, &["--", "bash", "-c", script]].concat())
    };
    assert_eq!(run(&["--priority", "p0"], SEND), [4, 0, 0]);
    assert_eq!(run(&["--priority", "p2"], SEND), [0, 4, 0]);
    assert_eq!(run(&["--priority", "p4"], SEND), [0, 0, 4]);
    assert_eq!(run(&["--dscp", "af21"], SEND), [4, 0, 0]);
    assert_eq!(run(&["--priority", "p0", "--code-point", "p0=le"], SEND), [0, 0, 4]);
    // A run inside another has its own marks alone.
    let nested = format!("{PROGRAM} run --priority p4 -- bash -c '{SEND}'; {SEND}");
    assert_eq!(run(&["--priority", "p0"], &nested), [4, 0, 4]);
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.toml");
    let text = "priority = \"p4\"\n[[rule]]\nport = 9\nprotocol = \"tcp\"\npriority = \"p0\"\n";
    std::fs::write(&rules, text).unwrap();
    assert_eq!(run(&["--rules", rules.to_str().unwrap()], SEND), [2, 0, 2]);
}

/// Shell of the client that fetches a small file so many times over new connections, and prints each time in seconds.
const FETCH: &str =
    "for n in $(seq 300); do curl -s -o /dev/null -w '%{time_total}\\n' http://10.9.8.2:8080/small; done";

/// Python of the client that uploads by CUBIC until it is killed.
const BULK: &str = "import socket
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
s.connect(('10.9.8.2', 9000))
while True: s.sendall(bytes(65536))";

/// Median and 99th percentile in milliseconds of fetches beside an upload, each with the words before its command.
fn beside_bulk(rate: &str, fetch: &[&str], bulk: &[&str]) -> [f64; 2] {
    let net = Net::new("bulk", rate).unwrap();
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("small"), [7; 2000]).unwrap();
    let path = site.path().to_str().unwrap();
    let mut server = net
        .within(2, &[PROGRAM, "serve", path, "--plaintext", "--quiet", "--listen", "10.9.8.2:8080"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut sink = net
        .within(2, &["python3", "-c", "import socket\ns = socket.create_server(('10.9.8.2', 9000))\nprint('listening', flush=True)\nc = s.accept()[0]\nwhile c.recv(65536): pass"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(sink.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let ready = "until curl -s -o /dev/null http://10.9.8.2:8080/small; do :; done";
    assert!(net.within(0, &["sh", "-c", ready]).status().unwrap().success());
    let mut upload = net.within(0, &[bulk, &["python3", "-c", BULK]].concat()).spawn().unwrap();
    // The queue is full before the first fetch.
    while !did("tc", &format!("-n {} -s qdisc show dev wan", net.names[1])).lines().any(|line| {
        let waiting = line
            .split("backlog ")
            .nth(1)
            .and_then(|rest| rest.split(' ').nth(1)?.strip_suffix('p')?.parse().ok());
        waiting.is_some_and(|packets: u32| packets > 50)
    }) {}
    let output = net.within(0, &[fetch, &["sh", "-c", FETCH]].concat()).output().unwrap();
    for child in [&mut upload, &mut sink, &mut server] {
        did("kill", &child.id().to_string());
        child.wait().unwrap();
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let mut times: Vec<f64> = text.lines().map(|line| 1e3 * line.parse::<f64>().unwrap()).collect();
    assert_eq!(times.len(), 300, "{text}");
    times.sort_by(f64::total_cmp);
    [times[149], times[296]]
}

#[test]
#[ignore = "measures times of fetches in real time"]
fn fetches_beside_an_upload_through_a_router_that_knows_marks() {
    if is_impossible() || absent!(Need::Program("tc"), Need::Program("curl"), Need::Program("python3")) {
        return;
    }
    let with = |priority| [PROGRAM, "run", "--priority", priority, "--"];
    for rate in ["10mbit", "50mbit"] {
        let none = beside_bulk(rate, &[], &[]);
        let urgent = beside_bulk(rate, &with("p0"), &[]);
        let low = beside_bulk(rate, &[], &with("p4"));
        let both = beside_bulk(rate, &with("p0"), &with("p0"));
        eprintln!(
            "{rate}: no marks {none:.1?} ms, fetches p0 {urgent:.1?} ms, upload p4 {low:.1?} ms, both p0 {both:.1?} ms"
        );
        assert!(urgent[1] < none[1] && low[1] < none[1]);
        // A mark that everybody has is none.
        assert!(urgent[0] < both[0]);
    }
}
