//! `marcato crq` as a process, on a pair of devices in a network namespace of its own.
//!
//! These tests need root, and programs that were built with clang, and are skipped without.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::process::{Command, Output};

use marcato_testing::{Need, absent};
use serde_json::Value;

/// Devices `wan` and `lan`, the latter's address as neighbour of the former, and a place for pins.
const SETUP: &str = r#"
set -e
mount --make-rprivate /
mount -t sysfs sysfs /sys
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
ip link add wan type veth peer name lan
ip addr add 10.9.6.1/24 dev wan
ip link set wan addrgenmode none
ip link set lan addrgenmode none
ip link set wan up
ip link set lan up
ip neigh add 10.9.6.2 lladdr 02:00:00:00:00:02 dev wan
send() { for n in $(seq "$1"); do echo > /dev/udp/10.9.6.2/9; done; }
"#;

/// Waits until `monitor` has printed a line of JSON: from then on it sees every packet.
const WATCHES: &str = "until [ -s $lines ]; do :; done";
/// Settings whose queues every kernel has.
const DROPTAIL: &str = "--rate 20mbit --standard droptail --responsive droptail --young 0";

/// Runs a script of bash in the namespace, up to the first command that fails. `crq` is the command; one
/// in the background is `$marcato crq`, so that `$!` is its process.
fn run(script: &str) -> Output {
    let script = format!("{SETUP}\ncrq() {{ $marcato crq \"$@\"; }}\n{script}");
    // A script that waits for nothing ends, and its test fails.
    let mut namespace = Command::new("timeout");
    namespace.env("marcato", env!("CARGO_BIN_EXE_marcato"));
    namespace
        .args([
            "--kill-after=5",
            "150",
            "unshare",
            "--kill-child",
            "--fork",
            "--net",
            "--mount",
            "bash",
            "-c",
            &script,
        ])
        .output()
        .unwrap()
}

/// Returns whether this machine lacks something without which no device can have the programs.
fn is_impossible() -> bool {
    absent!(Need::Root, Need::Programs(marcato_kernel::OBJECT), Need::KernelTypes, Need::Program("tc"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn errors(output: &Output) -> String {
    text(&output.stderr)
}

/// Output of a script that succeeds.
fn said(script: &str) -> String {
    let ended = run(script);
    assert!(ended.status.success(), "{script}: {}{}", text(&ended.stdout), errors(&ended));
    text(&ended.stdout)
}

fn documents(output: &str) -> Vec<Value> {
    output
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_device_gets_crq_and_new_settings_and_is_as_before() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "crq attach wan {DROPTAIL}
         send 5
         crq status wan --format json
         crq set wan --share 70 --preset paper
         crq status --format json
         tc class show dev wan
         crq detach wan
         tc qdisc show dev wan
         ls /sys/fs/bpf/marcato"
    ));
    let [before, after] = &documents(&output)[..] else { panic!("{output}") };
    let packets = |status: &Value| status["counters"]["standard"]["packets"].as_u64().unwrap();
    assert_eq!((packets(before), packets(after)), (5, 5), "{output}");
    assert_eq!(before["counters"]["unassessed"]["packets"], 5);
    let queues: Vec<_> = before["queues"].as_array().unwrap().iter().map(|queue| &queue["name"]).collect();
    assert_eq!(queues, ["root", "responsive", "standard"]);
    let settings = &after["settings"];
    assert_eq!(
        (&settings["share"], &settings["preset"], &settings["rate"]),
        (&70.into(), &"paper".into(), &"20Mbit/s".into())
    );
    assert!(
        output.contains("class htb c4:20 parent c4:1 leaf c420: prio 0 rate 14Mbit ceil 20Mbit"),
        "{output}"
    );
    assert!(output.contains("qdisc noqueue 0: root"), "{output}");
}

#[test]
fn young_flows_have_a_queue_that_set_takes_and_gives_back() {
    if is_impossible() {
        return;
    }
    let output = said(
        "crq attach wan --rate 20mbit --standard droptail --responsive droptail
         send 5
         crq status wan --format json
         tc class show dev wan
         crq set wan --young 0
         echo taken
         tc class show dev wan
         send 5
         crq status wan --format json
         crq set wan --young 60 --young-allowance 64KiB
         echo given
         tc class show dev wan
         crq status wan",
    );
    let [before, after] = &documents(&output)[..] else { panic!("{output}") };
    let packets = |status: &Value| {
        ["young", "standard"].map(|queue| status["counters"][queue]["packets"].as_u64().unwrap())
    };
    assert_eq!((packets(before), packets(after)), ([5, 0], [5, 5]), "{output}");
    let names = |status: &Value| -> Vec<String> {
        let queues = status["queues"].as_array().unwrap().iter();
        queues.map(|queue| queue["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(before).contains(&"young".to_owned()), "{output}");
    assert!(!names(after).contains(&"young".to_owned()), "{output}");
    let (first, rest) = output.split_once("taken\n").unwrap();
    let (taken, given) = rest.split_once("given\n").unwrap();
    // A quarter of the rate is left for the others together.
    for line in [
        "c4:30 parent c4:1 leaf c430: prio 0 rate 15Mbit",
        "c4:10 parent c4:1 leaf c410: prio 1 rate 2500Kbit",
    ] {
        assert!(first.contains(line), "{line}\n{output}");
    }
    assert!(!taken.contains("c4:30") && taken.contains("rate 10Mbit ceil 20Mbit"), "{output}");
    assert!(given.contains("c4:30 parent c4:1 leaf c430: prio 0 rate 12Mbit"), "{output}");
    assert!(given.contains("young flows first with 60 %"), "{output}");
}

#[test]
fn a_dry_run_prints_every_change_and_makes_none() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "echo 'rate = \"50mbit\"
standard = \"droptail\"' > /tmp/crq-dry.toml
         crq attach wan --config /tmp/crq-dry.toml --dry-run
         rm /tmp/crq-dry.toml
         crq monitor wan --dry-run
         tc qdisc show dev wan
         crq attach wan {DROPTAIL} > /dev/null
         crq set wan --rate 10mbit --dry-run
         crq detach wan --dry-run
         tc class show dev wan"
    ));
    for line in [
        "tc qdisc replace dev wan parent c4:10 handle c410: bfifo limit 625000",
        "attach crq_egress to packets that leave wan",
        "configure them: 50Mbit/s, young flows first with 75 %, standard queue droptail, responsive queue codel with 50 %, preset marcato, admitted by response to loss",
        "configure them: watched only, preset marcato",
        "qdisc noqueue 0: root refcnt 2 ",
        "tc class replace dev wan parent c4:1 classid c4:10 htb rate 5000000bit ceil 10000000bit burst 3028 cburst 3028 quantum 1514",
        "take the programs off wan, and remove their pins",
        "tc qdisc del dev wan root handle c4:",
    ] {
        assert!(output.lines().any(|said| said == line), "{line}\n{output}");
    }
    assert!(output.contains("rate 10Mbit ceil 20Mbit"), "{output}");
}

#[test]
fn an_impossible_change_is_refused_with_its_remedy() {
    if is_impossible() {
        return;
    }
    for (script, expected) in [
        ("crq attach nowhere --rate 1gbit", "there is no device `nowhere`"),
        ("crq attach lo --rate 1gbit", "link layer of kind `loopback`"),
        ("crq attach wan", "no rate was given: set `--rate`"),
        ("crq attach wan --config /nowhere.toml", "/nowhere.toml: No such file"),
        ("crq set wan", "nothing was given to change"),
        ("crq set wan --share 60", "CRQ is not on `wan`: put it there"),
        ("crq status", "CRQ is on no device of this network namespace"),
        ("crq status wan", "CRQ is not on `wan`"),
        ("crq detach wan", "nothing to take off"),
        (
            "tc qdisc add dev wan root handle 1: pfifo; crq attach wan --rate 1gbit",
            "allow it with `--replace`",
        ),
        ("umount /sys/fs/bpf; crq monitor wan", "mount -t bpf bpf /sys/fs/bpf"),
        (
            "setpriv --bounding-set=-bpf,-sys_admin bash -c 'exec $marcato crq monitor wan'",
            "the privilege CAP_BPF",
        ),
        ("crq monitor wan --report /nowhere/page.html", "the report cannot be written: /nowhere/page.html"),
        ("crq metrics --listen 192.0.2.1:9469", "cannot serve metrics at 192.0.2.1:9469"),
    ] {
        let ended = run(script);
        assert_eq!(ended.status.code(), Some(2), "{script}: {}", errors(&ended));
        assert!(errors(&ended).contains(expected), "{script}: {}", errors(&ended));
    }
    let twice = run(&format!("crq attach wan {DROPTAIL}; crq attach wan {DROPTAIL}"));
    assert!(errors(&twice).contains("CRQ is on `wan` already"), "{}", errors(&twice));
    let flows = run(&format!("crq attach wan {DROPTAIL}; crq set wan --flows 64"));
    assert!(errors(&flows).contains("the number of flows cannot change"), "{}", errors(&flows));
    let watched = run(&format!(
        "lines=$(mktemp)
         $marcato crq monitor wan --every 50ms --format json > $lines &
         {WATCHES}
         rm $lines
         crq set wan --rate 1gbit || kill $!"
    ));
    assert!(errors(&watched).contains("`wan` is only watched"), "{}", errors(&watched));
}

#[test]
fn a_queue_that_fails_leaves_the_device_as_it_was() {
    if is_impossible() {
        return;
    }
    // The programs cannot be pinned below a file. By then the queues are there.
    let ended = run(&format!(
        "crq attach wan {DROPTAIL} --pins /sys/fs/bpf/$(printf 'x%.0s' $(seq 300)) || true; tc qdisc show dev wan; ls /sys/fs/bpf"
    ));
    assert!(errors(&ended).contains("name too long"), "{}", errors(&ended));
    assert!(text(&ended.stdout).contains("qdisc noqueue 0: root"), "{}", text(&ended.stdout));
}

/// Names of the attachments whose pins are there.
const PINS: &str = "ls /sys/fs/bpf/marcato";

#[test]
fn programs_of_a_deleted_device_are_found_and_removed() {
    if is_impossible() {
        return;
    }
    let attach = format!("crq attach other {DROPTAIL}");
    for removal in ["crq clean", "crq detach wan", &attach] {
        let output = said(&format!(
            "crq attach wan {DROPTAIL}
             ip link add other type veth peer name others
             crq status --all
             crq clean
             ip link del wan
             crq status --all
             crq clean --dry-run
             echo before; {PINS}
             {removal} --dry-run
             {removal}
             echo after; {PINS}"
        ));
        let pins = |begin: &str| -> Vec<&str> {
            let lines = output.lines().skip_while(|line| *line != begin).skip(1);
            lines.take_while(|line| *line != "after").filter(|line| line.starts_with("crq-")).collect()
        };
        assert!(output.contains("wan     attached  20Mbit/s, standard queue droptail"), "{output}");
        assert!(output.contains("every attachment has its device"), "{output}");
        assert!(output.contains("wan     device gone  20Mbit/s"), "{output}");
        let named = output.matches("remove the programs of wan, which is gone (device ").count();
        assert!(named >= 2, "{named}: {output}");
        let [before] = pins("before")[..] else { panic!("{output}") };
        assert!(!pins("after").contains(&before), "{output}");
        assert_eq!(pins("after").len(), usize::from(removal.contains("other")), "{output}");
    }
}

#[test]
fn a_device_that_comes_again_gets_crq_anew() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "crq attach wan {DROPTAIL}
         ip link del wan
         ip link add wan type veth peer name lan
         ip link set wan up
         ip link set lan up
         crq attach wan {DROPTAIL}
         crq status --all
         crq detach wan
         {PINS}"
    ));
    assert_eq!(output.matches(" attached ").count(), 1, "{output}");
    assert!(!output.contains("gone") && !output.contains("crq-"), "{output}");
}

#[test]
fn programs_of_a_namespace_leave_when_it_is_gone() {
    if is_impossible() {
        return;
    }
    // The kernel takes a namespace down some time after its last process.
    let output = said(&format!(
        "begin='ip link add wan type veth peer name lan; $marcato crq attach wan {DROPTAIL}'
         unshare --net bash -c \"$begin; kill -STOP \\$\\$\" &
         there=$!
         until [ \"$(crq status --all | grep -c attached)\" = 1 ]; do :; done
         unshare --net bash -c \"$begin\"
         until [ \"$(crq status --all | grep -c 'device gone')\" = 1 ]; do :; done
         crq clean
         crq status --all
         kill -KILL $there"
    ));
    let status = output.lines().filter(|line| line.starts_with("  wan ")).collect::<Vec<_>>();
    assert_eq!(status.len(), 1, "{output}");
    assert!(status[0].contains(" attached "), "{output}");
}

#[test]
fn attach_takes_over_what_a_crash_has_left() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "crq attach wan {DROPTAIL}
         rm /sys/fs/bpf/marcato/crq-*/{{note,crq_ingress}} || rm -f /sys/fs/bpf/marcato/crq-*/note
         crq status --all
         crq clean
         crq attach wan {DROPTAIL} --share 70
         send 5
         crq status wan --format json
         crq detach wan
         crq attach wan {DROPTAIL}
         rm -r /sys/fs/bpf/marcato/crq-*
         crq attach wan {DROPTAIL} --share 60
         tc class show dev wan"
    ));
    assert!(output.contains("?       incomplete"), "{output}");
    assert!(output.contains("every attachment has its device"), "{output}");
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(status["counters"]["standard"]["packets"], 5, "{output}");
    assert_eq!(status["settings"]["share"], 70);
    assert!(output.contains("rate 12Mbit ceil 20Mbit"), "{output}");
}

/// A `tc` that refuses a queue, as a kernel without it does.
const REFUSING: &str = r#"
bin=$(mktemp -d)
printf '#!/bin/sh\ncase "$*" in *fq_codel*) echo "Error: Specified qdisc kind is unknown." >&2; exit 2;; esac\nexec %s "$@"\n' $(command -v tc) > $bin/tc
chmod +x $bin/tc
PATH=$bin:$PATH
"#;

#[test]
fn a_refused_change_leaves_rates_and_queues_as_they_were() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{REFUSING}
         state() {{ tc class show dev wan; tc qdisc show dev wan; crq status wan --format json | grep -o '\"settings\":{{[^}}]*}}'; }}
         crq attach wan {DROPTAIL}
         state > $bin/before
         for change in '--standard fq-codel' '--responsive fq-codel' '--rate 10mbit --share 80 --responsive fq-codel --preset paper'; do
             crq set wan $change 2> $bin/errors || echo refused
             grep -o 'load its module' $bin/errors
             state > $bin/after
             diff $bin/before $bin/after
         done
         crq set wan --rate 10mbit
         state | grep 'rate 10Mbit ceil 10Mbit'
         rm -r $bin"
    ));
    assert_eq!(output.matches("refused\nload its module\n").count(), 3, "{output}");
}

#[test]
fn who_lacks_privileges_is_told_to_become_root() {
    if is_impossible() {
        return;
    }
    let crq = |command: &str| format!("bash -c 'exec $marcato crq {command}'");
    let nobody = "chmod 755 /sys/fs/bpf; setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all";
    let bare = "setpriv --bounding-set=-all --inh-caps=-all";
    let commands = ["set wan --share 60", "detach wan", "clean", "status wan", "status --all"];
    let mut script = format!(
        "marcato=$(mktemp); cp {} $marcato; chmod 755 $marcato; export marcato; crq attach wan {DROPTAIL}\n",
        env!("CARGO_BIN_EXE_marcato")
    );
    for command in commands {
        script += &format!("echo '+ {command}'; ({nobody} {}) 2>&1 || true\n", crq(command));
    }
    for command in &commands[..3] {
        script += &format!("echo '+ {command}'; {bare} {} 2>&1 || true\n", crq(command));
    }
    script += &format!("echo '+ dry'; {nobody} {} 2>&1\n", crq("attach lan --rate 20mbit --dry-run"));
    script += "rm $marcato";
    let output = said(&script);
    let (output, dry) = output.split_once("+ dry").unwrap();
    assert!(dry.contains("without --dry-run, this is missing: ") && dry.contains("run as root"), "{dry}");
    for answer in output.split("+ ").skip(1) {
        assert!(answer.contains("run as root"), "{answer}");
        assert!(!answer.contains("Linux") && !answer.contains("panicked"), "{answer}");
    }
}

#[test]
fn an_ifb_finds_its_device_or_says_what_is_missing() {
    if is_impossible() {
        return;
    }
    let ifb = Command::new("unshare").args(["--net", "ip", "link", "add", "ifb9", "type", "ifb"]).output();
    if !ifb.unwrap().status.success() {
        marcato_testing::skip(env!("CARGO_PKG_NAME"), "the kernel has no ifb");
        return;
    }
    let output = said(&format!(
        "exec 2>&1
         redirect() {{
             tc qdisc add dev $1 clsact
             tc filter add dev $1 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9
         }}
         ip link add ifb9 type ifb
         ip link set ifb9 up
         crq attach ifb9 {DROPTAIL} || echo refused
         redirect lan
         crq attach ifb9 {DROPTAIL}
         send 3
         crq status ifb9 --format json
         crq set ifb9 --reverse wan || echo refused
         crq set ifb9 --share 60
         crq detach ifb9
         crq monitor wan --reverse lan --dry-run
         crq monitor wan --reverse wan --dry-run || echo refused
         redirect wan
         crq attach ifb9 {DROPTAIL} || echo refused
         crq attach ifb9 {DROPTAIL} --reverse wan
         ip link del wan
         crq status ifb9"
    ));
    for line in [
        "packets of no device that `tc` knows are redirected to it: name the device by which the other direction leaves",
        "packets of lan and wan are redirected to it",
        "other direction by lan",
        "CRQ is on ifb9: 20Mbit/s, standard queue droptail, responsive queue droptail with 60 %",
        "the device of the other direction cannot change",
        "attach crq_ingress to packets that leave lan",
        "ifb9: device of the other direction gone, 20Mbit/s",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    assert_eq!(output.matches("refused").count(), 4, "{output}");
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!((&status["settings"]["reverse"], &status["state"]), (&"lan".into(), &"attached".into()));
    assert_eq!(status["counters"]["standard"]["packets"], 3, "{output}");
}

#[test]
fn monitoring_ends_whole_when_the_device_goes() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "lines=$(mktemp)
         $marcato crq monitor wan --every 50ms --format json --report $lines.html > $lines 2> $lines.errors &
         {WATCHES}
         ip link del wan
         wait $! || echo failed
         grep -c 'What attach would have done' $lines.html; rm $lines.html
         cat $lines.errors
         rm $lines $lines.errors
         {PINS}"
    ));
    assert!(output.contains("failed") && output.contains("Cannot find device"), "{output}");
    assert!(!output.contains("crq-"), "{output}");
}

#[test]
fn the_unit_leaves_nothing_of_a_device_that_goes() {
    if is_impossible() {
        return;
    }
    let unit = include_str!("../../../contrib/crq/marcato-crq@.service");
    let command = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.replace("/usr/bin/marcato", "$marcato").replace("/etc/marcato", "/tmp/$$").replace(['%'], "")
    };
    let [start, stop] = ["ExecStart=", "ExecStop="].map(|key| {
        command(key).replace(" I ", " wan ").replace("/i.", "/wan.").replace("detach I", "detach wan")
    });
    let output = said(&format!(
        "mkdir -p /tmp/$$/crq
         printf 'rate = \"20mbit\"\nstandard = \"droptail\"\nresponsive = \"droptail\"\n' > /tmp/$$/crq/wan.toml
         {start}
         ip link del wan
         {stop}
         rm -r /tmp/$$
         {PINS}"
    ));
    assert!(output.contains("CRQ is on wan") && !output.contains("crq-"), "{output}");
    // systemd stops the unit with its device, and starts it with the next one of that name.
    let device = "sys-subsystem-net-devices-%i.device";
    assert!(unit.contains(&format!("BindsTo={device}")), "{unit}");
    let wanted = unit.lines().find(|line| line.starts_with("WantedBy=")).unwrap();
    assert!(wanted.contains(device), "{wanted}");
}

#[test]
fn monitoring_changes_nothing_and_ends_without_a_trace() {
    if is_impossible() {
        return;
    }
    for signal in ["INT", "TERM", "HUP"] {
        let output = said(&format!(
            "signal={signal}
         lines=$(mktemp)
         $marcato crq monitor wan --every 50ms --format json > $lines &
         {WATCHES}
         send 3
         until grep -q '\"standard\":{{\"packets\":3' $lines; do :; done
         tc qdisc show dev wan
         kill -$signal $!
         wait $!
         tail -n 1 $lines
         rm $lines
         ls /sys/fs/bpf/marcato"
        ));
        let [last] = &documents(&output)[..] else { panic!("{output}") };
        assert_eq!(
            (&last["settings"], &last["queues"][0]["kind"]),
            (&serde_json::json!({}), &"noqueue".into())
        );
        assert_eq!(last["counters"]["responsive"]["packets"], 0);
        assert!(output.lines().all(|line| !line.starts_with("crq-")), "{output}");
    }
}

#[test]
fn a_killed_monitor_is_taken_off_and_packets_pass_meanwhile() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "lines=$(mktemp)
         $marcato crq monitor wan --every 50ms --format json > $lines &
         {WATCHES}
         rm $lines
         kill -KILL $!
         wait $! || true
         send 4
         crq status --format json
         crq detach wan
         send 4
         ip -s -j link show dev wan"
    ));
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(status["counters"]["standard"]["packets"], 4, "{output}");
    let link: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(link[0]["stats64"]["tx"]["packets"], 8, "{output}");
}

#[test]
fn metrics_have_queues_and_verdicts_and_no_address() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "crq attach wan {DROPTAIL} > /dev/null
         send 6
         exec 4< <(exec $marcato crq metrics --listen 127.0.0.1:0)
         metrics=$!
         read -r _ _ url <&4
         port=${{url#http://127.0.0.1:}}; port=${{port%/metrics}}
         ask() {{ exec 3<>/dev/tcp/127.0.0.1/$port; printf \"$1 $2 HTTP/1.1\\r\\nHost: here\\r\\nAccept: ${{3:-*/*}}\\r\\n\\r\\n\" >&3; cat <&3; echo; }}
         ask GET /metrics
         echo next; ask GET /metrics application/openmetrics-text
         echo next; ask HEAD /metrics
         echo next
         ask POST /metrics | head -n 1
         ask GET /else | head -n 1
         kill $metrics
         crq detach wan > /dev/null"
    ));
    let [classic, open, head, refused] = &output.split("next\n").collect::<Vec<_>>()[..] else {
        panic!("{output}")
    };
    assert!(classic.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{classic}");
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("# TYPE marcato_crq_queue_packets counter") && open.contains("# EOF"), "{open}");
    assert!(!classic.contains("# EOF"), "{classic}");
    // All of a response but its body.
    let fields = |answer: &str, name: &str| answer.lines().any(|line| line.starts_with(name));
    assert!(fields(head, "HTTP/1.1 200 OK") && fields(head, "content-length: "), "{head}");
    assert!(head.trim_end().lines().all(|line| !line.starts_with('#') && !line.contains('{')), "{head}");
    assert!(fields(refused, "HTTP/1.1 405"), "{refused}");
    for line in [
        "HTTP/1.1 200 OK\r",
        "# TYPE marcato_crq_queue_packets_total counter",
        "marcato_crq_settings_info{device=\"wan\",state=\"attached\",rate_bps=\"20000000\",share=\"50\",young=\"0\",standard=\"droptail\",responsive=\"droptail\",preset=\"marcato\",admit=\"loss\",flows=\"16384\",reverse=\"\",version=\"VERSION\"} 1",
        "marcato_crq_queue_packets_total{device=\"wan\",queue=\"standard\",kind=\"bfifo\"} 6",
        "marcato_crq_verdict_packets_total{device=\"wan\",signal=\"loss\",verdict=\"none\"} 0",
        "marcato_crq_events_total{device=\"wan\",event=\"unassessed\"} 6",
        "HTTP/1.1 405 Method Not Allowed\r",
        "HTTP/1.1 404 Not Found\r",
    ] {
        let line = line.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert!(output.lines().any(|said| said == line.trim_end()), "{line}\n{output}");
    }
    assert!(!output.contains("10.9.6"), "{output}");
}

#[test]
fn queues_that_somebody_removes_are_told_and_attach_takes_over() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "crq attach wan {DROPTAIL}
         tc qdisc del dev wan root
         crq status wan
         crq set wan --share 60 2>&1 || echo refused
         crq attach wan {DROPTAIL}
         send 3
         crq status wan --format json"
    ));
    assert!(output.contains("wan: queues gone, 20Mbit/s"), "{output}");
    assert!(
        output.contains("have been removed (queues gone): attach it again") && output.contains("refused"),
        "{output}"
    );
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(
        (&status["state"], &status["counters"]["standard"]["packets"]),
        (&"attached".into(), &3.into())
    );
}

/// Tree of HTB on `wan`, as somebody else has set it up. Packets to port 9 belong to the class 1:10.
const TREE: &str = r#"
tree() {
    tc qdisc add dev wan root handle 1: htb default 20
    tc class add dev wan parent 1: classid 1:1 htb rate 40mbit quantum 1514
    tc class add dev wan parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit prio 2 quantum 3028
    tc class add dev wan parent 1:1 classid 1:20 htb rate 30mbit ceil 30mbit quantum 1514
    tc qdisc add dev wan parent 1:10 handle 10: bfifo limit 30000
    tc filter add dev wan parent 1: protocol ip prio 1 u32 match ip dport 9 0xffff flowid 1:10
}
# The kernel lists them in no order.
state() { { tc qdisc show dev wan; tc class show dev wan; tc filter show dev wan parent 1:; } | sort; }
elsewhere() { for n in $(seq "$1"); do echo > /dev/udp/10.9.6.2/10; done; }
quiet="--standard droptail --responsive droptail --young 0"
young="--standard droptail --responsive droptail"
tree
"#;

#[test]
fn classes_of_a_tree_get_crq_and_what_they_had_is_put_back() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{TREE}
         state > /tmp/$$.before
         crq attach wan --parent 1:10 --parent 1:20 $young
         send 5
         elsewhere 3
         crq status wan --format json
         crq status wan
         tc class show dev wan
         tc filter show dev wan parent 1:
         crq set wan --share 75 --young 0
         echo changed; tc class show dev wan
         crq set wan --young 60
         crq set wan --rate 5mbit
         echo limited; tc class show dev wan; tc qdisc show dev wan
         crq set wan --parent 1:10 2>&1 || echo refused
         crq attach wan --parent 1:10 $quiet 2>&1 || echo refused
         crq status --all
         crq detach wan
         state > /tmp/$$.after
         diff /tmp/$$.before /tmp/$$.after && echo same
         rm /tmp/$$.*
         send 2
         {PINS}"
    ));
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    let packets = |counter: &str| status["counters"][counter]["packets"].as_u64().unwrap();
    assert_eq!((packets("young"), packets("standard")), (8, 0), "{output}");
    let queues: Vec<String> = status["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            format!(
                "{} {} {}",
                it["class"].as_str().unwrap_or("-"),
                it["name"].as_str().unwrap(),
                it["packets"]
            )
        })
        .collect();
    for row in [
        "- root 8",
        "1:10 all 5",
        "1:10 young 5",
        "1:10 standard 0",
        "1:20 all 3",
        "1:20 young 3",
        "1:20 responsive 0",
    ] {
        assert!(queues.iter().any(|queue| queue == row), "{row}: {queues:?}");
    }
    assert_eq!((queues.len(), &status["state"]), (9, &"attached".into()), "{output}");
    for line in [
        "CRQ is on wan: below 1:10, 1:20: the rate of each class, young flows first with 75 %, standard queue droptail",
        // The operator's own are as they were.
        "class htb 1:10 parent 1:1 leaf c500: prio 2 rate 10Mbit ceil 40Mbit",
        "class htb 1:20 parent 1:1 leaf c501: prio 0 rate 30Mbit ceil 30Mbit",
        "flowid 1:10",
        "the classes that have CRQ cannot change",
        "CRQ is on `wan` already",
        "wan     attached  below 1:10, 1:20: 5Mbit/s",
        "CRQ is off wan",
        "same",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    assert_eq!(output.matches("refused").count(), 2, "{output}");
    let changed = output.split("changed\n").nth(1).unwrap();
    let (changed, limited) = changed.split_once("limited\n").unwrap();
    assert!(changed.contains("c500:20 parent c500:1 ") && !changed.contains("c500:30"), "{changed}");
    assert!(changed.contains("rate 75Gbit ceil 100Gbit"), "{changed}");
    for line in ["class htb c501:30 parent c501:1 ", "rate 3Mbit ceil 5Mbit"] {
        assert!(limited.contains(line), "{line}\n{limited}");
    }
    assert!(!output.contains("crq-"), "{output}");
}

#[test]
fn a_dry_run_below_a_class_prints_each_change() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{TREE}
         crq attach wan --parent 1:10 $quiet --dry-run
         tc class show dev wan
         crq attach wan --parent 1:10 $quiet > /dev/null
         crq set wan --share 60 --dry-run
         crq detach wan --dry-run"
    ));
    for line in [
        "tc qdisc replace dev wan parent 1:10 handle c500: htb default 10",
        "tc class replace dev wan parent c500:1 classid c500:20 htb rate 50000000000bit ceil 100000000000bit burst 25000000 cburst 25000000 quantum 2500",
        // The limits are those of the class's rate.
        "tc qdisc replace dev wan parent c500:10 bfifo limit 500000",
        "attach crq_class to packets of the class 1:10 of wan, as a filter of c500:",
        "attach crq_ingress to packets that enter wan",
        "tc class replace dev wan parent c500:1 classid c500:20 htb rate 60000000000bit ceil 100000000000bit burst 25000000 cburst 25000000 quantum 3000",
        "tc qdisc replace dev wan parent 1:10 handle 10: bfifo limit 30000",
        "take the programs off wan, and remove their pins",
    ] {
        assert!(output.lines().any(|said| said == line), "{line}\n{output}");
    }
    assert!(!output.contains("crq_egress"), "{output}");
    assert!(output.contains("class htb 1:10 parent 1:1 leaf 10: "), "{output}");
}

#[test]
fn classes_that_cannot_have_crq_are_told_why_at_once() {
    if is_impossible() {
        return;
    }
    let ended = run(&format!(
        "{TREE}
         tc qdisc add dev wan parent 1:20 handle 20: htb
         tc class add dev wan parent 20: classid 20:1 htb rate 1mbit quantum 1514
         crq attach wan --parent 1:10 --parent 1:1 --parent 1:20 --parent 1:99 $quiet || code=$?
         tc qdisc show dev wan
         exit $code"
    ));
    assert_eq!(ended.status.code(), Some(2));
    for said in [
        "the class 1:1 of `wan` has classes below it: name these instead, as 1:10, 1:20",
        "the class 1:20 of `wan` has a queue with classes of its own (`htb 20:`): name one of these, or allow CRQ",
        "`wan` has no class 1:99: 1:10, 1:20, 20:1 can be named",
    ] {
        assert!(errors(&ended).lines().any(|line| line.contains(said)), "{said}\n{}", errors(&ended));
    }
    assert!(!text(&ended.stdout).contains("c500"), "{}", text(&ended.stdout));
    for (script, expected) in [
        ("crq attach wan --parent 1:10", "has no class 1:10: `tc class show dev wan` lists none of htb"),
        ("tc qdisc add dev wan root handle 7: pfifo; crq attach wan --parent 7:1", "has no class 7:1"),
        ("crq attach wan --parent 10", "such as 1:10"),
        ("crq attach wan", "or name a class of an HTB, as with `--parent 1:10`"),
    ] {
        let ended = run(script);
        assert_eq!(ended.status.code(), Some(2), "{script}: {}", errors(&ended));
        assert!(errors(&ended).contains(expected), "{script}: {}", errors(&ended));
    }
    // A queue with classes may go if it is asked for, and is not put back.
    let output = said(&format!(
        "{TREE}
         tc qdisc add dev wan parent 1:20 handle 20: htb
         crq attach wan --parent 1:20 $quiet --replace
         crq attach wan --parent c500:10 $quiet 2>&1 || true
         crq detach wan
         tc qdisc show dev wan"
    ));
    assert!(!output.contains("htb 20:") && !output.contains("htb c500:"), "{output}");
}

#[test]
fn a_class_that_goes_is_told_and_attach_takes_over() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{TREE}
         crq attach wan --parent 1:10 --parent 1:20 $quiet > /dev/null
         tc class del dev wan classid 1:20
         elsewhere 1
         crq status wan
         crq set wan --share 70 2>&1
         crq attach wan --parent 1:20 $quiet 2>&1 || echo refused
         tc class add dev wan parent 1:1 classid 1:20 htb rate 30mbit ceil 30mbit quantum 1514
         crq attach wan --parent 1:20 $quiet
         echo taken over; tc qdisc show dev wan; crq status --all
         tc qdisc del dev wan root
         crq status --all
         crq set wan --share 80 2>&1 || echo refused
         crq detach wan
         tree
         crq attach wan --parent 1:10 $quiet > /dev/null
         tc qdisc del dev wan root
         tree
         crq attach wan --parent 1:10 $quiet
         crq status wan
         ip link del wan
         crq status --all
         crq clean
         {PINS}"
    ));
    for line in [
        "wan: queues of 1:20 gone, below 1:10, 1:20: ",
        "note: the class 1:20 of wan has CRQ no more",
        "`wan` has no class 1:20: 1:10 can be named",
        "queues of 1:20 gone  below 1:20",
        "CRQ's queues on `wan` have been removed (queues gone): attach it again",
        "wan: attached, below 1:10",
        "wan     device gone  below 1:10",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    assert_eq!(output.matches("refused").count(), 2, "{output}");
    // The class that is named no more has its own queue again.
    let taken = output.split("taken over\n").nth(1).unwrap();
    assert!(taken.contains("qdisc bfifo 10: parent 1:10 limit 30000b"), "{output}");
    assert!(!output.lines().any(|line| line.starts_with("crq-")), "{output}");
}

#[test]
fn remains_of_a_crash_below_a_class_are_removed() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{TREE}
         state > /tmp/$$.before
         crq attach wan --parent 1:10 $quiet
         rm /sys/fs/bpf/marcato/crq-*/crq_ingress || rm /sys/fs/bpf/marcato/crq-*/crq_dropped
         crq status --all
         crq attach wan --parent 1:10 $quiet --share 60
         crq detach wan
         state | diff /tmp/$$.before - && echo same
         crq attach wan --parent 1:10 $quiet
         rm -r /sys/fs/bpf/marcato/crq-*
         crq attach wan --parent 1:10 $quiet
         send 4
         crq status wan --format json
         rm -r /sys/fs/bpf/marcato/crq-*
         crq detach wan
         tc qdisc show dev wan
         crq attach wan --parent 1:10 $quiet --pins /sys/fs/bpf/$(printf 'x%.0s' $(seq 300)) 2>&1 || echo failed
         tc qdisc show dev wan
         rm /tmp/$$.*"
    ));
    assert!(output.contains("wan     incomplete") && output.contains("same\n"), "{output}");
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(status["counters"]["standard"]["packets"], 4, "{output}");
    assert!(output.contains("name too long") && output.contains("failed"), "{output}");
    assert!(!output.contains("qdisc htb c500:"), "{output}");
}

#[test]
fn a_refused_change_below_classes_leaves_all_as_it_was() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{REFUSING}
         {TREE}
         both() {{ state; crq status wan --format json | grep -o '\"settings\":{{[^}}]*}}'; }}
         crq attach wan --parent 1:10 --parent 1:20 $quiet
         both > $bin/before
         for change in '--standard fq-codel' '--rate 5mbit --share 80 --young 50'; do
             crq set wan $change --young-queue fq-codel 2> $bin/errors || echo refused
             grep -o 'load its module' $bin/errors
             both > $bin/after
             diff $bin/before $bin/after
         done
         crq detach wan
         state > $bin/before
         crq attach wan --parent 1:10 --parent 1:20 --standard droptail 2>&1 || echo refused
         state | diff $bin/before -
         rm -r $bin"
    ));
    assert_eq!(output.matches("refused").count(), 3, "{output}");
}

/// File of a thousand subscribers, and a way to two of them.
const SUBSCRIBERS: &str = r#"
list=$(mktemp)
{
    echo "Circuit ID,Circuit Name,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps"
    for n in $(seq 0 999); do
        echo "s$n,Name $n,10.20.$((n / 250)).$((n % 250 + 1)),fd00:$n::/32,0.05,0.05,10,2"
    done
} > $list
ip route add 10.20.0.0/16 dev wan
for host in 8 9 10; do ip neigh add 10.20.0.$host lladdr 02:00:00:00:00:02 dev wan; done
to() { for n in $(seq "$2"); do echo > /dev/udp/10.20.0.$1/9; done; }
quiet="--rate 100mbit --standard droptail --responsive droptail --young 0"
one() { crq status wan --subscriber $1 --format json; }
"#;

#[test]
fn subscribers_of_a_file_have_classes_and_change_with_it() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{SUBSCRIBERS}
         begun=$(date +%s%N)
         crq attach wan $quiet --subscribers $list
         echo attached in $(( ($(date +%s%N) - begun) / 1000000 )) ms
         to 8 3
         to 9 2
         send 1
         one s7; one s8; crq status wan --top 1 --format json
         sed -i -e '/^s7,/d' -e 's/^s9,\\(.*\\),10,2$/s9,\\1,20,2/' $list
         echo 'new,,10.20.0.8,,0.05,0.05,5,1' >> $list
         crq reload wan --dry-run > $list.dry
         crq reload wan
         to 8 4
         to 9 1
         one new; one s8
         crq status wan --subscriber s7 2>&1 || echo refused
         tc class show dev wan | grep -c 'parent c4:1 '
         tc class show dev wan | grep -e 'c4:1007 ' -e 'c4:1009 ' -e 'c4:13e8 '
         crq set wan --share 75 --rate 80mbit
         tc class show dev wan | grep -e 'c4:1 root' -e '1009:20 '
         one s8
         crq status wan --top 2
         grep -e 'c4:1007' -e 's9' -e new $list.dry
         crq detach wan
         tc qdisc show dev wan
         rm $list*
         {PINS}"
    ));
    eprintln!("{}", output.lines().find(|line| line.starts_with("attached in")).unwrap());
    let [seventh, eighth, top, new, again, after] = &documents(&output)[..] else { panic!("{output}") };
    let rows = |status: &Value| -> Vec<(String, String, u64)> {
        let queues = status["queues"].as_array().unwrap().iter();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        queues
            .map(|row| (text(row, "subscriber"), text(row, "name"), row["packets"].as_u64().unwrap()))
            .collect()
    };
    let row = |name: &str, queue: &str, packets| (name.to_owned(), queue.to_owned(), packets);
    for (status, expected) in [
        (seventh, row("s7", "standard", 3)),
        (seventh, row("s7", "all", 3)),
        (seventh, row("", "root", 6)),
        (eighth, row("s8", "standard", 2)),
        (new, row("new", "standard", 4)),
        (again, row("s8", "standard", 3)),
        (after, row("s8", "standard", 3)),
    ] {
        assert!(rows(status).contains(&expected), "{expected:?}\n{:?}", rows(status));
    }
    assert_eq!((&seventh["subscribers"], rows(seventh).len()), (&1000.into(), 4), "{output}");
    assert_eq!(seventh["queues"][1]["max_bps"], 10_000_000, "{output}");
    // The one who sent most.
    assert_eq!(rows(top)[1], row("s7", "all", 3), "{output}");
    assert_eq!(rows(top).len(), 4);
    for line in [
        "wan: 1000 subscribers: 1 came, 1 have other rates, 1 left",
        "`wan` has no subscriber `s7`",
        // A class for each, and one for packets of nobody.
        "\n1001\n",
        "class htb c4:1009 parent c4:1 leaf 1009: prio 0 rate 50Kbit ceil 20Mbit",
        "class htb c4:13e8 parent c4:1 leaf 13e8: prio 0 rate 50Kbit ceil 5Mbit",
        "class htb c4:1 root rate 80Mbit ceil 80Mbit",
        "class htb 1009:20 parent 1009:1 ",
        "rate 75Gbit ceil 100Gbit",
        "1000 subscribers; these sent most:",
        "tc class del dev wan classid c4:1007",
        "let `s9` have the class c4:1009, with 50kbit/s to 20Mbit/s",
        "let `new` have the class c4:13e8",
        "qdisc noqueue 0: root",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    assert!(!output.contains("class htb c4:1007 ") && !output.contains("crq-"), "{output}");
}

#[test]
fn a_change_waits_until_another_is_finished() {
    if is_impossible() || absent!(Need::Program("flock")) {
        return;
    }
    let output = said(&format!(
        "crq attach wan {DROPTAIL}
         notes=$(mktemp)
         exec 9< /sys/fs/bpf
         flock 9
         $marcato crq set wan --share 70 2> $notes 9<&- &
         until grep 'waiting for another' $notes; do :; done
         crq set wan --share 60 --dry-run > /dev/null
         crq status --format json
         exec 9<&-
         wait $!
         crq status --format json
         rm $notes"
    ));
    let shares: Vec<_> =
        documents(&output).iter().map(|status| status["settings"]["share"].clone()).collect();
    assert_eq!(shares, [Value::Null, 70.into()], "{output}");
}

#[test]
fn a_wrong_file_of_subscribers_changes_nothing() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{SUBSCRIBERS}
         exec 2>&1
         crq attach wan --subscribers $list || echo refused
         crq attach wan $quiet --subscribers $list.absent || echo refused
         crq reload wan || echo refused
         crq attach wan $quiet > /dev/null
         crq reload wan || echo refused
         crq set wan --subscribers $list || echo refused
         crq detach wan > /dev/null
         head -n 20 $list > $list.few
         crq attach wan $quiet --subscribers $list.few > /dev/null
         state() {{ tc qdisc show dev wan; tc class show dev wan; }}
         state > $list.before
         sed -i -e '3s/10.20.0.2/10.20.0.300/' -e '5s/,10,2$/,fast,2/' $list.few
         crq reload wan || echo refused
         crq set wan --direction upload || echo refused
         state | diff $list.before -
         to 8 3
         one s7
         rm $list.few
         crq reload wan || echo refused
         crq detach wan
         rm $list*"
    ));
    assert_eq!(output.matches("refused").count(), 8, "{output}");
    for said in [
        "subscribers share the rate of a device: set `--rate`",
        ".absent: No such file",
        "CRQ is not on `wan`",
        "`wan` has no subscribers",
        "few:3: `10.20.0.300` is no address: write 192.0.2.7",
        "few:5: `Download Max Mbps` is `fast`, which is no number",
        "and their direction, cannot change",
        ".few: No such file",
    ] {
        assert!(output.contains(said), "{said}\n{output}");
    }
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(status["queues"][1]["packets"], 3, "{output}");
}

#[test]
fn a_failed_reload_leaves_classes_and_addresses_as_they_were() {
    if is_impossible() {
        return;
    }
    // A `tc` that fails in the middle of a batch.
    let output = said(&format!(
        "{SUBSCRIBERS}
         head -n 11 $list > $list.few
         crq attach wan $quiet --subscribers $list.few > /dev/null
         state() {{ {{ tc qdisc show dev wan; tc class show dev wan; }} | sort; }}
         state > $list.before
         bin=$(mktemp -d)
         real=$(command -v tc)
         printf '#!/bin/sh\n[ \"$*\" = \"-batch -\" ] || exec %s \"$@\"\nsed -n \"/100a:20/q;p\" | %s -batch -\necho Error: refused >&2; echo Command failed -:1 >&2; exit 1\n' $real $real > $bin/tc
         chmod +x $bin/tc
         sed -i -e 's/,10,2$/,20,2/' -e '/^s7,/d' $list.few
         echo 'new,,10.20.0.8,,0.05,0.05,5,1' >> $list.few
         PATH=$bin:$PATH crq reload wan 2>&1 || echo refused
         state | diff $list.before - && echo same
         to 8 3
         one s7
         rm -r $bin $list*"
    ));
    assert!(output.contains("fails: Error: refused") && output.contains("refused\nsame\n"), "{output}");
    let [status] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(
        (&status["queues"][1]["packets"], &status["subscribers"]),
        (&3.into(), &10.into()),
        "{output}"
    );
}

#[test]
fn a_reload_after_a_crash_makes_all_classes_whole() {
    if is_impossible() {
        return;
    }
    // A class that nobody knows, with the handle of the next one who comes, and a class that is gone.
    let output = said(&format!(
        "{SUBSCRIBERS}
         head -n 11 $list > $list.few
         crq attach wan $quiet --subscribers $list.few > /dev/null
         tc class add dev wan parent c4:1 classid c4:100a htb rate 1mbit quantum 1514
         tc qdisc add dev wan parent c4:100a handle 100a: htb
         tc class del dev wan classid c4:1008
         sed -i -e '/^s7,/d' $list.few
         echo 'new,,10.20.0.8,,0.05,0.05,5,1' >> $list.few
         crq reload wan
         to 8 3
         to 9 2
         one new; one s8
         tc class show dev wan | grep -c 'parent c4:1 '
         rm $list*"
    ));
    let [new, eighth] = &documents(&output)[..] else { panic!("{output}") };
    assert_eq!(
        (&new["queues"][1]["packets"], &eighth["queues"][1]["packets"]),
        (&3.into(), &2.into()),
        "{output}"
    );
    assert!(output.contains("\n11\n"), "{output}");
}

#[test]
fn metrics_have_as_many_subscribers_as_were_asked_for() {
    if is_impossible() {
        return;
    }
    let output = said(&format!(
        "{SUBSCRIBERS}
         crq attach wan $quiet --subscribers $list > /dev/null
         to 8 3
         to 9 2
         for n in 0 1; do
             exec 4< <(exec $marcato crq metrics --listen 127.0.0.1:0 --subscribers $n)
             metrics=$!
             read -r _ _ url <&4
             port=${{url#http://127.0.0.1:}}; port=${{port%/metrics}}
             exec 3<>/dev/tcp/127.0.0.1/$port; printf 'GET /metrics HTTP/1.1\\r\\nHost: here\\r\\n\\r\\n' >&3; cat <&3
             echo; echo next
             kill $metrics
         done
         rm $list*"
    ));
    let [none, one, ..] = &output.split("next\n").collect::<Vec<_>>()[..] else { panic!("{output}") };
    assert!(!none.contains("subscriber=\"") && none.contains("queue=\"root\""), "{none}");
    let row = "marcato_crq_queue_packets_total{device=\"wan\",queue=\"standard\",kind=\"bfifo\",subscriber=\"s7\"} 3";
    assert!(one.contains(row) && !one.contains("subscriber=\"s8\""), "{one}");
}
