//! `marcato lab` as a process.
//!
//! These tests need root, or user namespaces with access to `/dev/net/tun`, and are skipped without.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use marcato_testing::{Need, absent};

/// Command on a host of the network of `examples/codel-cubic.toml`.
fn lab(arguments: &[&str]) -> Command {
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/codel-cubic.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.args(["lab", "run"]).arg(example).args(arguments);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    if absent!(Need::LabProcess) {
        return;
    }
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let ended = lab(&["-q", "--", "sh", "-c", script]).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{script}: {}", said(&ended));
        assert_eq!(said(&ended), "");
    }
    let ended = lab(&["--host", "nowhere", "--", "true"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(125));
    assert!(said(&ended).contains("there is no host `nowhere`"), "{}", said(&ended));
}

#[test]
fn a_command_that_cannot_run_is_told_from_a_lab_that_cannot() {
    if absent!(Need::LabProcess) {
        return;
    }
    for (command, status) in [("/nonexistent", 127), ("/etc/hosts", 126)] {
        let ended = lab(&["-q", "--", command]).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{}", said(&ended));
        assert!(said(&ended).contains("cannot run `"), "{}", said(&ended));
        let marcato = env!("CARGO_BIN_EXE_marcato");
        let ended = lab(&["-q", "--", marcato, "lab", "exec", "server-1", "--", command]).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{}", said(&ended));
    }
}

#[test]
fn each_host_has_its_name_and_buffers_for_its_paths() {
    if absent!(Need::LabProcess) {
        return;
    }
    let script = r#"uname -n; cat /proc/sys/net/ipv4/tcp_rmem; "$0" lab exec server -- sh -c "uname -n; cat /proc/sys/net/ipv4/tcp_wmem""#;
    let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    let marcato = env!("CARGO_BIN_EXE_marcato");
    // 4 times 1 Gbit/s for 400 ms.
    let ended = shaped(&["--link", "1 Gbit/s, 200 ms", "--", "sh", "-c", script, marcato]);
    let said = String::from_utf8(ended.stdout).unwrap();
    let [client, receive, server, send] = &said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!((*client, *server), ("client", "server"));
    for values in [receive, send] {
        assert_eq!(values.split_whitespace().nth(2), Some("200000000"), "{said}");
    }
    // The machine's own stay, and so do those of short paths.
    assert_eq!(std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap(), own);
    let ended = shaped(&["--link", "1 Mbit/s, 1 ms", "--", "sh", "-c", script, marcato]);
    let said = String::from_utf8(ended.stdout).unwrap();
    let largest = said.lines().nth(1).and_then(|values| values.split_whitespace().nth(2));
    let largest: u64 = largest.unwrap().parse().unwrap();
    // 1000 bytes would be enough, but no maximum is lowered.
    assert!(largest > 100_000, "{said}");
}

#[test]
fn statistics_have_a_row_for_each_direction_and_interval() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("links.csv");
    let path = file.to_str().unwrap();
    let script = "for n in 1 2 3 4 5 6 7 8; do echo > /dev/udp/server-1/9; sleep 0.05; done";
    let ended =
        lab(&["-q", "--stats", path, "--every", "100ms", "--", "bash", "-c", script]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time_s,link,direction,mbps,queue_bytes,packets,dropped,lost"));
    let there: Vec<Vec<_>> = lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|cells| cells[1] == "bottleneck" && cells[2] == "there")
        .collect();
    assert!(there.len() >= 2, "{text}");
    let packets: u64 = there.iter().map(|cells| cells[5].parse::<u64>().unwrap()).sum();
    assert!((1..=8).contains(&packets), "{text}");
    let times: Vec<f64> = there.iter().map(|cells| cells[0].parse().unwrap()).collect();
    assert!(times.is_sorted(), "{text}");
}

#[test]
fn root_of_a_user_namespace_may_open_labs() {
    if absent!(Need::UserNamespaces, Need::LabProcess) {
        return;
    }
    let script = r#""$0" lab exec server-1 -- cat /proc/net/dev"#;
    let plain = lab(&["-q", "--", "sh", "-c", script, env!("CARGO_BIN_EXE_marcato")]);
    let mut inside = Command::new("unshare");
    let ended = inside.arg("-Ur").arg(plain.get_program()).args(plain.get_args()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("link"));
}

#[test]
fn counts_of_the_links_are_printed() {
    if absent!(Need::LabProcess) {
        return;
    }
    // A datagram to a port without a socket. The server answers by ICMP, and reading fails once that has
    // arrived.
    let script = "exec 3<>/dev/udp/server-1/9; echo >&3; ! read -r <&3 2>&-";
    let ended = lab(&["--", "bash", "-c", script]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let said = said(&ended);
    let packets = said.lines().find(|line| line.contains("bottleneck") && line.contains("there")).unwrap();
    assert_eq!(packets.split_ascii_whitespace().nth(2), Some("1"), "{said}");
}

/// Starts a command that starts another one, and returns the number of the latter. That has no environment, as if it
/// had written its title over it.
fn with_grandchild() -> (Child, u32) {
    let script = "env -i setsid sleep 1000 >/dev/null 2>&1 & echo $!; wait";
    let mut lab = lab(&["-q", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(lab.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (lab, line.trim().parse().unwrap())
}

#[test]
fn commands_run_on_other_hosts_of_their_lab() {
    if absent!(Need::LabProcess) {
        return;
    }
    let marcato = env!("CARGO_BIN_EXE_marcato");
    // In the network of the other host, with its names, and in the same directory.
    let script = r#"cd /tmp; ip -o -4 addr show scope global
        "$0" lab exec server-1 -- sh -c "ip -o -4 addr show scope global; grep client-1 /etc/hosts; pwd""#;
    let ended = lab(&["-q", "--", "sh", "-c", script, marcato]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let text = String::from_utf8(ended.stdout).unwrap();
    let here = text.lines().next().unwrap().split_ascii_whitespace().nth(3).unwrap();
    let there = text.lines().nth(1).unwrap().split_ascii_whitespace().nth(3).unwrap();
    assert_ne!(here, there, "{text}");
    assert!(
        text.contains(&format!("{} client-1", here.trim_end_matches("/32"))) && text.ends_with("/tmp\n"),
        "{text}"
    );

    // The status is that of the command.
    let ended =
        lab(&["-q", "--", marcato, "lab", "exec", "server-2", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(7), "{}", said(&ended));
}

#[test]
fn no_command_gets_to_a_host_that_is_not_in_its_lab() {
    let exec = |host| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        command.args(["lab", "exec", host, "--", "true"]);
        command
    };
    let outside = exec("server-1").output().unwrap();
    assert_eq!(outside.status.code(), Some(125));
    assert!(said(&outside).contains("this is not inside a lab"), "{}", said(&outside));
    let ended = exec("server-1")
        .envs([("MARCATO_LAB", "1-1"), ("MARCATO_LAB_HOSTS", "server-1=1")])
        .output()
        .unwrap();
    assert!(said(&ended).contains("has ended"), "{}", said(&ended));
    if absent!(Need::LabProcess) {
        return;
    }
    let marcato = env!("CARGO_BIN_EXE_marcato");
    let ended = lab(&["-q", "--", marcato, "lab", "exec", "nowhere", "--", "true"]).output().unwrap();
    assert!(said(&ended).contains("there is no host `nowhere`"), "{}", said(&ended));
    assert!(said(&ended).contains("server-1"), "{}", said(&ended));
}

#[test]
fn servers_in_the_background_end_with_the_command() {
    if absent!(Need::LabProcess) {
        return;
    }
    for start in ["setsid", "env -i setsid"] {
        let script =
            format!(r#""$0" lab exec server-1 -- {start} sleep 1000 >/dev/null 2>&1 & echo $!; sleep 0.3"#);
        let ended = lab(&["-q", "--", "sh", "-c", &script, env!("CARGO_BIN_EXE_marcato")]).output().unwrap();
        assert!(ended.status.success(), "{}", said(&ended));
        let process: u32 = String::from_utf8(ended.stdout).unwrap().trim().parse().unwrap();
        ends(process);
    }
}

/// Waits for the end of a process.
fn ends(process: u32) {
    // Its new parent need not have collected it yet.
    let is_alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let begun = std::time::Instant::now();
    while is_alive() {
        // Only a failure takes that long.
        assert!(begun.elapsed() < std::time::Duration::from_secs(60));
        std::thread::yield_now();
    }
}

/// Returns what `marcato lab clean` prints.
fn clean(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    let cleaned = command.args(["lab", "clean"]).args(options).output().unwrap();
    assert!(cleaned.status.success(), "{}", said(&cleaned));
    String::from_utf8(cleaned.stdout).unwrap()
}

/// Devices of the network namespace of a process.
fn devices(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap()
}

#[test]
fn a_killed_lab_leaves_no_device_and_clean_finds_the_rest() {
    if absent!(Need::LabProcess) {
        return;
    }
    let (mut killed, orphan) = with_grandchild();
    let (mut living, kept) = with_grandchild();
    assert!(devices(orphan).contains("link"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The orphan keeps its namespace, without the devices: those went with the lab.
    assert!(!devices(orphan).contains("link"));
    assert!(clean(&["--dry-run"]).contains(&format!("would kill {orphan} (sleep)")));
    let cleaned = clean(&[]);
    assert!(cleaned.contains(&format!("killed {orphan} (sleep)")), "{cleaned}");
    assert!(!cleaned.contains(&format!("killed {kept} ")), "its lab still runs: {cleaned}");
    assert!(devices(kept).contains("link"));
    living.kill().unwrap();
    living.wait().unwrap();
    assert!(clean(&[]).contains(&format!("killed {kept} (sleep)")));
}

#[test]
fn packets_are_captured_and_listed() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [pcap, packets] = ["all.pcapng", "all.csv"].map(|name| directory.path().join(name));
    let options = ["-q", "--pcap", pcap.to_str().unwrap(), "--packets", packets.to_str().unwrap()];
    // The answer to the last comes after all have arrived.
    let script = "for n in 1 2; do echo > /dev/udp/server-1/9; done; exec 3<>/dev/udp/server-1/9; echo >&3; ! read -r <&3 2>&-";
    let ended = lab(&[&options[..], &["--", "bash", "-c", script]].concat()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let rows = std::fs::read_to_string(&packets).unwrap();
    let of = |event: &str| {
        let is_it = |row: &&str| {
            let cells: Vec<_> = row.split(',').collect();
            cells[1] == "bottleneck" && cells[2] == "there" && cells[3] == event && cells[5] == "17"
        };
        rows.lines().filter(is_it).count()
    };
    assert_eq!((of("offered"), of("left"), of("arrived")), (3, 3, 3), "{rows}");
    let times: Vec<&str> = rows.lines().skip(1).map(|row| row.split(',').next().unwrap()).collect();
    let times: Vec<f64> = times.into_iter().map(|time| time.parse().unwrap()).collect();
    assert!(times.is_sorted(), "{rows}");
    // Each packet has come out of three links, and is captured where it reached its host: three there, and the
    // refusals of their port back.
    let all = capture(&pcap);
    let udp: Vec<_> = all.iter().filter(|packet| packet.protocol == 17).collect();
    assert_eq!(udp.len(), 3, "{all:?}");
    assert!(udp.iter().all(|packet| packet.interface.contains("server-1")), "{all:?}");
    assert!(all.len() > 3 && all.is_sorted_by_key(|packet| packet.at), "{all:?}");

    let named = ["--pcap-link", "bottleneck"];
    let ended = lab(&[&options[..3], &named, &["--", "bash", "-c", script]].concat()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let middle = capture(&pcap);
    let udp: Vec<_> = middle.iter().filter(|packet| packet.protocol == 17).collect();
    assert_eq!(udp.len(), 3, "{middle:?}");
    assert!(middle.iter().all(|packet| packet.interface.starts_with("bottleneck ")), "{middle:?}");
    let ended = lab(&[&options[..3], &["--pcap-link", "moon", "--", "true"]].concat()).output().unwrap();
    assert_eq!(ended.status.code(), Some(125));
    assert!(said(&ended).contains("no link `moon` to capture: name one of "), "{}", said(&ended));
}

/// Packet of a capture.
#[derive(Debug)]
struct Captured {
    interface: String,
    at: u64,
    protocol: u8,
}

/// Reads the packets of a pcapng file in little-endian order (draft-ietf-opsawg-pcapng §4).
fn capture(file: &std::path::Path) -> Vec<Captured> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0x0a0d_0d0a, "a pcapng section header");
    let (mut at, mut interfaces, mut packets) = (0, Vec::new(), Vec::new());
    while at < bytes.len() {
        let (kind, len) = (word(at), word(at + 4) as usize);
        if kind == 1 {
            // The name is the first option: code 2, and its length.
            let name = usize::from(u16::from_le_bytes([bytes[at + 18], bytes[at + 19]]));
            interfaces.push(String::from_utf8(bytes[at + 20..at + 20 + name].to_vec()).unwrap());
        } else if kind == 6 {
            let packet = &bytes[at + 28..];
            packets.push(Captured {
                interface: interfaces[word(at + 8) as usize].clone(),
                at: u64::from(word(at + 12)) << 32 | u64::from(word(at + 16)),
                protocol: if packet[0] >> 4 == 4 { packet[9] } else { packet[6] },
            });
        }
        at += len;
    }
    packets
}

#[test]
fn a_command_finds_lab_exec_without_a_path() {
    if absent!(Need::LabProcess) {
        return;
    }
    let script = "marcato lab exec server-1 -- grep -c server-1 /etc/hosts";
    let ended = lab(&["-q", "--", "sh", "-c", script]).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
}

#[test]
fn a_host_shows_its_own_devices_below_sys() {
    if absent!(Need::Root, Need::LabProcess) {
        return;
    }
    let groups = std::fs::read_dir("/sys/fs").unwrap().count();
    let script = "ls -1 /sys/class/net | sort; echo; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort; echo; ls -1 /sys/fs | wc -l";
    let ended = lab(&["-q", "--", "sh", "-c", script]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let text = String::from_utf8(ended.stdout).unwrap();
    let [shown, there, below] = &text.split("\n\n").collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(shown, there);
    assert!(shown.contains("link"), "{text}");
    assert_eq!(below.trim().parse(), Ok(groups), "{text}");
}

/// Command on the client of a lab whose network is in these arguments.
fn shaped(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.args(["lab", "run", "-q"]).args(arguments);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    ended
}

/// Rows of UDP packets in a file of `--packets`: time in ms, direction, and event.
fn udp_events(file: &std::path::Path) -> Vec<(f64, String, String)> {
    let rows = std::fs::read_to_string(file).unwrap();
    let rows = rows.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let udp = rows.filter(|cells| cells[5] == "17");
    udp.map(|cells| (cells[0].parse::<f64>().unwrap() * 1e3, cells[2].to_owned(), cells[3].to_owned()))
        .collect()
}

/// Sends IPv4 packets of 1000 bytes to the server, and then waits for the refusal of a connection, which comes last.
const BURST: &str =
    "for n in 1 2 3 4 5 6 7 8; do printf %0972d 0 >/dev/udp/10.0.0.2/9; done; ! exec 3<>/dev/tcp/10.0.0.2/9";

#[test]
fn a_link_in_one_line_has_its_rate_and_delay() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("packets.csv");
    // 1000 bytes at 100 kbit/s take 80 ms; the way back has another rate.
    let link = ["--link", "30 ms, droptail, up 100 kbit/s, down 5 Mbit/s"];
    let packets = ["--packets", file.to_str().unwrap()];
    let begun = std::time::Instant::now();
    shaped(&[&link[..], &packets, &["--", "bash", "-c", BURST]].concat());
    // However busy the machine is, the answer cannot come before the packets in front of it have left.
    assert!(begun.elapsed() >= std::time::Duration::from_millis(8 * 80 + 60));
    let events = udp_events(&file);
    let times = |event: &str| -> Vec<f64> {
        events.iter().filter(|of| of.1 == "there" && of.2 == event).map(|of| of.0).collect()
    };
    let (left, arrived) = (times("left"), times("arrived"));
    assert_eq!((left.len(), arrived.len()), (8, 8), "{events:?}");
    for (left, arrived) in left.iter().zip(&arrived) {
        assert!((arrived - left - 110.0).abs() < 0.01, "{left} {arrived}");
    }
    // Between those that waited for each other there is one transmission.
    let gaps: Vec<f64> = left.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap > 79.99), "{gaps:?}");
    assert!(gaps.iter().any(|gap| (gap - 80.0).abs() < 0.01), "{gaps:?}");
}

#[test]
fn links_in_a_row_add_up_and_their_options_act_on_packets() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("packets.csv");
    let row = ["--link", "10 ms", "--link", "5 ms", "--packets", file.to_str().unwrap()];
    // Behind the router, the server is the third node.
    shaped(&[&row[..], &["--", "bash", "-c", &BURST.replace("10.0.0.2", "server")]].concat());
    let events = udp_events(&file);
    let count = |event: &str| events.iter().filter(|of| of.1 == "there" && of.2 == event).count();
    assert_eq!((count("offered"), count("arrived")), (16, 16), "{events:?}");

    let options = ["--link", "5 ms", "--up", "loss 100%", "--packets", file.to_str().unwrap()];
    let lossy = "for n in 1 2 3; do printf %0972d 0 >/dev/udp/server/9; done";
    shaped(&[&options[..], &["--", "bash", "-c", lossy]].concat());
    let events = udp_events(&file);
    assert!(events.iter().filter(|of| of.2 == "lost").count() >= 1, "{events:?}");
    assert!(events.iter().all(|of| of.2 != "arrived"), "{events:?}");

    let trace = directory.path().join("trace");
    std::fs::write(&trace, "50\n100\n").unwrap();
    let options = ["--trace", trace.to_str().unwrap(), "--packets", file.to_str().unwrap()];
    shaped(&[&options[..], &["--", "bash", "-c", BURST]].concat());
    let events = udp_events(&file);
    let arrived: Vec<f64> =
        events.iter().filter(|of| of.1 == "there" && of.2 == "arrived").map(|of| of.0).collect();
    assert_eq!(arrived.len(), 8, "{events:?}");
    // The last byte of each leaves at an opportunity.
    assert!(arrived.iter().all(|at| (at / 50.0 - (at / 50.0).round()).abs() < 1e-3), "{arrived:?}");
}

#[test]
fn corruption_and_duplication_reach_real_sockets() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("packets.csv");
    let options = ["--link", "1 ms", "--up", "duplicate 100%", "--packets", file.to_str().unwrap()];
    shaped(&[&options[..], &["--", "bash", "-c", BURST]].concat());
    let events = udp_events(&file);
    assert_eq!(events.iter().filter(|of| of.1 == "there" && of.2 == "arrived").count(), 16, "{events:?}");
    // The kernel throws away what is corrupted, so no refusal of a port comes back. The packets before it went the
    // same way.
    let file = directory.path().join("corrupt.csv");
    let options = ["--link", "1 ms", "--up", "corrupt 100%", "--packets", file.to_str().unwrap()];
    let script = "exec 3<>/dev/udp/server/9; for n in 1 2 3; do printf %0972d 0 >&3; done; ! read -t 0.2 <&3";
    shaped(&[&options[..], &["--", "bash", "-c", script]].concat());
    let rows = std::fs::read_to_string(&file).unwrap();
    assert!(rows.contains(",there,") && !rows.contains(",back,"), "{rows}");
}

#[test]
fn a_network_that_cannot_be_is_refused_before_a_lab_opens() {
    for (arguments, message) in [
        (&["--link", "12 Mbps"][..], "--link: `12 Mbps` is not a rate: did you mean \"12 Mbit/s\"?"),
        (&["--up", "1 Mbit/s", "--loss", "1"], "--loss: `loss 1` is no share of packets"),
        (
            &["--link", "1 ms", "--link", "2 ms", "--loss", "1%"],
            "there are several links, and --loss is for one",
        ),
        (&["--trace", "/nonexistent"], "the trace `/nonexistent`: cannot be read"),
        (&["--link", "1 Mbit/s, droptail 1 B"], "the link cannot be made: a limit of 1 B cannot hold"),
        (&[], "there is no network: name the file of a scenario, or describe a link"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        let ended = command.args(["lab", "run"]).args(arguments).args(["--", "true"]).output().unwrap();
        assert_eq!(ended.status.code(), Some(125), "{arguments:?}");
        assert!(said(&ended).contains(message), "{arguments:?}: {}", said(&ended));
    }
}

#[test]
fn a_file_that_only_shapes_needs_no_flows() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shape.toml");
    let scenario =
        "name = \"shape\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"1 ms\"\n";
    std::fs::write(&file, scenario).unwrap();
    let run = |verb: &[&str], rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        command.args(verb).arg(&file).args(rest).output().unwrap()
    };
    let ended = run(&["lab", "run"], &["--", "grep", "-c", " b$", "/etc/hosts"]);
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "2\n");
    assert!(said(&ended).contains("the command runs on a; "), "{}", said(&ended));
    // A simulation would do nothing.
    let ended = run(&["sim"], &[]);
    assert_eq!(ended.status.code(), Some(2));
    for key in ["flow", "duration"] {
        assert!(said(&ended).contains(&format!("needs `{key}`")), "{}", said(&ended));
    }
}

#[test]
fn a_lab_inside_a_lab_says_that_links_do_not_add_up() {
    if absent!(Need::LabProcess) {
        return;
    }
    let inner = r#""$0" lab run --link '1 ms' -- grep -c server /etc/hosts"#;
    let marcato = env!("CARGO_BIN_EXE_marcato");
    let ended = shaped(&["--link", "1 ms", "--", "sh", "-c", inner, marcato]);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "2\n");
    assert!(said(&ended).contains("this lab is inside another one"), "{}", said(&ended));
}

/// Scenario of one short transfer.
const TRANSFER: &str = r#"
name = "transfer"
duration = "1 s"
nodes = ["client", "server"]
[[link]]
name = "link"
between = ["client", "server"]
rate = "20 Mbit/s"
delay = "5 ms"
[[flow]]
name = "file"
kind = "tcp"
from = "client"
to = "server"
size = "200 kB"
[record]
series = ["link.link.queue"]
"#;

/// Compares both worlds of a scenario. The results are in `out` of the directory.
fn compared(scenario: &str) -> (Output, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("transfer.toml"), directory.path().join("out"));
    std::fs::write(&file, scenario).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    let ended = command.args(["lab", "compare"]).arg(&file).arg("--out").arg(&out).output().unwrap();
    (ended, directory)
}

#[test]
fn a_comparison_has_every_number_of_both() {
    if absent!(Need::LabProcess) {
        return;
    }
    // However busy the machine is, the transfer ends within the run: the lab's time is real.
    let (ended, directory) = compared(&TRANSFER.replace("duration = \"1 s\"", "duration = \"5 s\""));
    let out = directory.path().join("out");
    assert!(ended.status.success(), "{}", said(&ended));
    let table = std::fs::read_to_string(out.join("comparison.csv")).unwrap();
    let row = |metric: &str| {
        let row = table.lines().map(|row| row.split(',').collect::<Vec<_>>()).find(|row| row[1] == metric);
        row.unwrap_or_else(|| panic!("no {metric} in {table}"))
    };
    assert_eq!(row("flow.file.received_bytes")[2..], ["200000", "200000", "0"]);
    let times: Vec<f64> =
        row("flow.file.transfer.completion_p50_ms")[2..4].iter().map(|cell| cell.parse().unwrap()).collect();
    // At 20 Mbit/s the data alone take 80 ms.
    assert!(times.iter().all(|time| (80.0..5000.0).contains(time)), "{times:?}");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("link, simulated") && page.contains("link, lab"), "both lines of the queue");
    for world in ["simulation", "lab"] {
        let results = std::fs::read_dir(out.join(world)).unwrap().next().unwrap().unwrap().path();
        assert!(results.join("result.json").exists(), "{}", results.display());
    }
}

#[test]
fn every_run_of_a_comparison_is_checked_before_the_first() {
    if absent!(Need::LabProcess) {
        return;
    }
    // The first run would take a day, and the second cannot be built in a lab.
    let grid =
        "[grid]\nvary = { \"link.link.queue\" = [\"droptail\", { kind = \"strict\", preempt = true }] }\n";
    let scenario = TRANSFER.replace("duration = \"1 s\"", "duration = \"86400 s\"") + grid;
    let (ended, directory) = compared(&scenario);
    assert_eq!(ended.status.code(), Some(2), "{}", said(&ended));
    assert!(said(&ended).contains("remove `preempt`"), "{}", said(&ended));
    assert!(!directory.path().join("out").exists());
}

#[test]
fn a_lab_says_on_which_host_its_command_runs() {
    if absent!(Need::LabProcess) {
        return;
    }
    let ended = lab(&["--", "true"]).output().unwrap();
    assert!(said(&ended).contains("the command runs on client-1, where"), "{}", said(&ended));
    let ended = lab(&["--host", "server-1", "--", "true"]).output().unwrap();
    assert!(!said(&ended).contains("the command runs on"), "{}", said(&ended));
}

#[test]
fn a_trial_reads_its_scenario_from_standard_input() {
    if absent!(Need::LabProcess) {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.args(["lab", "trial", "-", "--format", "csv"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), TRANSFER.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(String::from_utf8(ended.stdout).unwrap().lines().count(), 2);
}

#[test]
fn a_trial_prints_what_a_simulation_prints() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("transfer.toml");
    std::fs::write(&file, TRANSFER).unwrap();
    let keys = |command: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_marcato"));
        let ended = run.args(command).arg(&file).args(["--format", "csv"]).output().unwrap();
        assert!(ended.status.success(), "{}", said(&ended));
        let text = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(keys(&["lab", "trial"]), keys(&["sim"]));
}

#[test]
fn an_interrupted_trial_ends_at_once_with_status_130() {
    if absent!(Need::LabProcess) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("long.toml");
    std::fs::write(&file, TRANSFER.replace("duration = \"1 s\"", "duration = \"600 s\"")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.args(["lab", "trial"]).arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let trial = command.spawn().unwrap();
    let process = rustix::process::Pid::from_child(&trial);
    // The lab runs, by threads of its own, and the handler is installed: without it, the signal would end the
    // trial as any other program. SIGINT is bit 1 of the signals that are caught.
    let (tasks, status) = (format!("/proc/{}/task", trial.id()), format!("/proc/{}/status", trial.id()));
    let is_caught = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(caught, 16).unwrap() & 0b10 != 0
    };
    while std::fs::read_dir(&tasks).unwrap().count() < 4 || !is_caught() {
        std::thread::yield_now();
    }
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let ended = trial.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", said(&ended));
    assert!(said(&ended).contains("interrupted: after"), "{}", said(&ended));
}
