//! Place of a measurement: the loopback interface, or a link of known rate.
//!
//! A link is three network namespaces: sender, router, receiver. The router's interfaces have HTB
//! at the rate and a first-in-first-out queue behind it. The router is a separate host, because a
//! sender's kernel holds back data that its own queues have not sent (TCP small queues). No router
//! on the Internet causes that.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that a full packet counts on the link: 1500 bytes and the Ethernet header, as in HTB.
pub(crate) const PACKET: f64 = 1514.0;

/// Largest UDP payload that every stack looks for on a link.
pub(crate) const ETHERNET: u16 = 1452;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) mbps: u32,
    /// Duration of a full queue, in milliseconds.
    pub(crate) queue_ms: u32,
}

impl Shape {
    pub(crate) fn name(self) -> String {
        format!("{}mbit", self.mbps)
    }

    fn queue(self) -> u32 {
        self.mbps * 125 * self.queue_ms
    }

    /// Time in milliseconds that the link takes for `bytes`.
    pub(crate) fn ms(self, bytes: f64) -> f64 {
        bytes * 8.0 / (f64::from(self.mbps) * 1e3)
    }
}

/// Three namespaces, removed on drop.
pub(crate) struct Link {
    names: [String; 3],
}

pub(crate) enum Place {
    /// Interface with datagrams of this size in bytes.
    Loopback(u16),
    Link(Link),
}

impl Place {
    pub(crate) fn sender(&self) -> Option<&str> {
        match self {
            Self::Loopback(_) => None,
            Self::Link(link) => Some(&link.names[0]),
        }
    }

    pub(crate) fn receiver(&self) -> Option<&str> {
        match self {
            Self::Loopback(_) => None,
            Self::Link(link) => Some(&link.names[2]),
        }
    }

    /// Returns the size of the largest datagrams, in bytes of UDP payload.
    pub(crate) const fn mtu(&self) -> u16 {
        match self {
            Self::Loopback(mtu) => *mtu,
            Self::Link(_) => ETHERNET,
        }
    }

    /// Returns the receiver's address.
    pub(crate) const fn addr(&self) -> &'static str {
        match self {
            Self::Loopback(_) => "127.0.0.1",
            Self::Link(_) => "198.18.1.2",
        }
    }
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Link {
    /// Creates a link, with addresses reserved for measurements (RFC 2544, 198.18.0.0/15).
    pub(crate) fn new(shape: Shape) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = format!("marcato-paired-{}-{number}", std::process::id());
        let [s, r, d] = ["sender", "router", "receiver"].map(|role| format!("{base}-{role}"));
        // From here on, dropping the link removes the parts created so far.
        let link = Self { names: [s.clone(), r.clone(), d.clone()] };
        for name in &link.names {
            run(&format!("ip netns add {name}"))?;
            run(&format!("ip -n {name} link set lo up"))?;
        }
        run(&format!("ip link add wire netns {s} type veth peer name left netns {r}"))?;
        run(&format!("ip link add wire netns {d} type veth peer name right netns {r}"))?;
        for (name, device, addr) in [
            (&s, "wire", "198.18.0.2/24"),
            (&r, "left", "198.18.0.1/24"),
            (&r, "right", "198.18.1.1/24"),
            (&d, "wire", "198.18.1.2/24"),
        ] {
            run(&format!("ip -n {name} addr add {addr} dev {device}"))?;
            if shape.mbps < 1000 && device == "wire" {
                // One packet at a time, so that the queue holds packets. On fast links segments
                // stay together, as they do up to a fast network card; HTB still counts each
                // segment's headers.
                run(&format!("ip -n {name} link set {device} gso_max_segs 1"))?;
            }
            run(&format!("ip -n {name} link set {device} up"))?;
        }
        run(&format!("ip -n {s} route add default via 198.18.0.1"))?;
        run(&format!("ip -n {d} route add default via 198.18.1.1"))?;
        run(&format!("ip netns exec {r} sysctl -q -w net.ipv4.ip_forward=1"))?;
        let (mbps, queue) = (shape.mbps, shape.queue());
        for device in ["left", "right"] {
            run(&format!("tc -n {r} qdisc add dev {device} root handle 1: htb default 10"))?;
            run(&format!(
                "tc -n {r} class add dev {device} parent 1: classid 1:10 htb rate {mbps}mbit ceil {mbps}mbit \
                 quantum 60000"
            ))?;
            run(&format!("tc -n {r} qdisc add dev {device} parent 1:10 handle 10: bfifo limit {queue}"))?;
        }
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            // Deleting a namespace that was never created fails, which is harmless.
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}
