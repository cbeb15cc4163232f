//! Network of the tests.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use marcato_kernel::{Device, OBJECT, Queue, Shaper, TcError};
use marcato_testing::{Need, absent, skip};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A router, and a host on either side of it, as namespaces; and a file system for pins. The router's device
/// towards the second host is `wan`.
pub(crate) struct Net {
    pub(crate) names: [String; 3],
    pub(crate) pins: tempfile::TempDir,
}

pub(crate) fn run(program: &str, words: &str) -> Result<String, String> {
    let said = Command::new(program).args(words.split_whitespace()).output().map_err(|e| e.to_string())?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
}

/// Packets that hosts hand to their devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offloads {
    /// Packets as they will be on the wire.
    Off,
    /// Up to 64 kB in one, which is Linux's default.
    On,
}

impl Net {
    pub(crate) fn new(name: &str) -> Option<Self> {
        Self::with(name, Offloads::Off)
    }

    pub(crate) fn with(name: &str, offloads: Offloads) -> Option<Self> {
        if absent!(Need::Root, Need::Programs(OBJECT), Need::KernelTypes, Need::Program("tc")) {
            return None;
        }
        let names =
            ["router", "server", "client"].map(|end| format!("mk-{name}-{end}-{}", std::process::id()));
        let net = Self { names, pins: tempfile::tempdir().unwrap() };
        let [router, server, client] = &net.names;
        let pins = net.pins.path().display();
        run("mount", &format!("-t bpf bpf {pins}")).unwrap();
        for end in &net.names {
            run("ip", &format!("netns add {end}")).unwrap();
        }
        run("ip", &format!("link add wan netns {router} type veth peer name eth0 netns {server}")).unwrap();
        run("ip", &format!("link add lan netns {router} type veth peer name eth0 netns {client}")).unwrap();
        for (end, device, address) in [
            (router, "wan", "10.9.8.1"),
            (server, "eth0", "10.9.8.2"),
            (router, "lan", "10.9.7.1"),
            (client, "eth0", "10.9.7.2"),
        ] {
            run("ip", &format!("-n {end} addr add {address}/24 dev {device}")).unwrap();
            // No packets of address discovery: they belong to no flow, and a full queue drops them too.
            run("ip", &format!("-n {end} link set {device} addrgenmode none")).unwrap();
            let segments = if offloads == Offloads::Off { "gso_max_segs 1" } else { "" };
            run("ip", &format!("-n {end} link set {device} up {segments}")).unwrap();
        }
        for (end, gateway) in [(server, "10.9.8.1"), (client, "10.9.7.1")] {
            run("ip", &format!("-n {end} route add default via {gateway}")).unwrap();
        }
        net.on(0, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        Some(net)
    }

    /// Runs something in a namespace: that of the router, of the server, or of the client.
    pub(crate) fn on<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let path = Path::new("/var/run/netns").join(&self.names[end]);
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let namespace = File::open(path).unwrap();
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// Sends so many bytes by TCP from the client to the server. A local sender would keep the queues short
    /// by itself.
    pub(crate) fn send(&self, bytes: usize) {
        let listener = self.on(1, || TcpListener::bind("10.9.8.2:0").unwrap());
        let address = listener.local_addr().unwrap();
        let received = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
        });
        let mut stream = self.on(2, || TcpStream::connect(address).unwrap());
        stream.write_all(&vec![7; bytes]).unwrap();
        drop(stream);
        assert_eq!(received.join().unwrap(), bytes as u64);
    }

    /// Socket of the server for datagrams of the router.
    pub(crate) fn receiver(&self) -> UdpSocket {
        let receiver = self.on(1, || UdpSocket::bind("10.9.8.2:9000").unwrap());
        receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        receiver
    }

    /// Socket of the router with this port, whose datagrams go to [`receiver`](Self::receiver).
    pub(crate) fn sender(&self, port: u16) -> UdpSocket {
        let socket = self.on(0, || UdpSocket::bind(("10.9.8.1", port)).unwrap());
        socket.connect("10.9.8.2:9000").unwrap();
        socket
    }

    /// Ports of the datagrams that arrive until the queues of `wan` are empty, in their order.
    pub(crate) fn arrivals(&self, receiver: &UdpSocket) -> Vec<u16> {
        let mut ports = Vec::new();
        loop {
            match receiver.recv_from(&mut [0; 2000]) {
                Ok((_, from)) => ports.push(from.port()),
                Err(_) if self.on(0, || Queue::all("wan").unwrap())[0].qlen == 0 => return ports,
                Err(_) => {}
            }
        }
    }

    /// Adds the device `many` with so many transmit queues between router and server, below `mq` with the handle 7.
    pub(crate) fn add_many(&self, queues: usize) {
        let [router, server, _] = &self.names;
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        let link =
            format!("link add many netns {router} {queues} type veth peer name eth1 netns {server} {queues}");
        run("ip", &link).unwrap();
        for (end, device) in [(router, "many"), (server, "eth1")] {
            run("ip", &format!("-n {end} link set {device} addrgenmode none")).unwrap();
            run("ip", &format!("-n {end} link set {device} up")).unwrap();
        }
        self.tc("qdisc replace dev many root handle 7: mq");
    }

    pub(crate) fn tc(&self, words: &str) -> String {
        run("tc", &format!("-n {} {words}", self.names[0])).unwrap()
    }

    /// Makes the queues of the device `wan`.
    pub(crate) fn shape(&self, shaper: &Shaper) {
        self.shape_device("wan", shaper);
    }

    /// Makes the queues of a device of the router.
    pub(crate) fn shape_device(&self, name: &str, shaper: &Shaper) {
        self.try_shape(name, shaper).unwrap();
    }

    /// Makes the queues of the device `wan`. Returns whether the kernel has their disciplines: it tells only when
    /// asked for one. If not, the test counts as skipped.
    pub(crate) fn can_shape(&self, shaper: &Shaper) -> bool {
        match self.try_shape("wan", shaper) {
            Err(why @ TcError::Kind { .. }) => {
                skip(env!("CARGO_PKG_NAME"), &why.to_string());
                false
            }
            made => made.map(|()| true).unwrap(),
        }
    }

    fn try_shape(&self, name: &str, shaper: &Shaper) -> Result<(), TcError> {
        self.on(0, || {
            let device = Device::find(name).unwrap();
            shaper.commands(&device).iter().try_for_each(|command| command.run().map(drop))
        })
    }

    /// Number in the statistics of a class that follows a word.
    pub(crate) fn of_class(&self, class: &str, word: &str) -> u64 {
        let classes = self.tc("-s class show dev wan");
        let of = classes.split("class htb ").find(|text| text.starts_with(class)).unwrap();
        of.split(word).nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Queue of a class of a device of the router.
    pub(crate) fn leaf(&self, device: &str, class: &str) -> Queue {
        let queues = self.on(0, || Queue::all(device).unwrap());
        queues.into_iter().find(|queue| queue.parent.as_deref() == Some(class)).unwrap()
    }

    /// Drops of all queues of the device but the root, which counts them again.
    pub(crate) fn drops(&self) -> u64 {
        let queues: Vec<serde_json::Value> =
            serde_json::from_str(&self.tc("-s -j qdisc show dev wan")).unwrap();
        queues
            .iter()
            .filter(|queue| queue["parent"].is_string())
            .map(|queue| queue["drops"].as_u64().unwrap())
            .sum()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &format!("netns del {name}"));
        }
        let _ = run("umount", &self.pins.path().display().to_string());
    }
}
