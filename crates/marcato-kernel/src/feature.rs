//! Features of a kernel that Marcato uses.

/// Feature of the kernel that a part of Marcato uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Programs of eBPF, with the privileges to load and attach them.
    Bpf,
    /// The kernel's description of its own types.
    Btf,
    /// A file system in which programs and maps outlive their process.
    BpfFs,
    /// The second version of control groups, with a hierarchy that this process may write to.
    CgroupV2,
    /// The hook `clsact` for packets of a device.
    Clsact,
    /// Hooks of a device that need no queue.
    Tcx,
    /// Hierarchical token bucket: classes with rates and priorities.
    Htb,
    /// Controlled delay (CoDel).
    Codel,
    /// Controlled delay with a queue for each flow.
    FqCodel,
    /// Fair queues with pacing.
    Fq,
    /// BBR as a congestion control of TCP.
    Bbr,
    /// Virtual devices whose packets a process reads and writes.
    Tun,
    /// User namespaces for ordinary users.
    UserNamespaces,
    /// Multipath TCP.
    Mptcp,
    /// A time of departure for each datagram.
    TxTime,
    /// Several datagrams in one call that sends.
    UdpGso,
    /// Several datagrams in one call that receives.
    UdpGro,
}

impl Feature {
    /// All features, in the order in which they are shown.
    pub const ALL: [Self; 17] = [
        Self::Bpf,
        Self::Btf,
        Self::BpfFs,
        Self::CgroupV2,
        Self::Clsact,
        Self::Tcx,
        Self::Htb,
        Self::Codel,
        Self::FqCodel,
        Self::Fq,
        Self::Bbr,
        Self::Tun,
        Self::UserNamespaces,
        Self::Mptcp,
        Self::TxTime,
        Self::UdpGso,
        Self::UdpGro,
    ];

    /// Returns the name by which users know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bpf => "BPF",
            Self::Btf => "BTF",
            Self::BpfFs => "bpf file system",
            Self::CgroupV2 => "cgroup v2",
            Self::Clsact => "clsact",
            Self::Tcx => "tcx",
            Self::Htb => "HTB",
            Self::Codel => "CoDel",
            Self::FqCodel => "FQ-CoDel",
            Self::Fq => "fq",
            Self::Bbr => "BBR",
            Self::Tun => "TUN",
            Self::UserNamespaces => "user namespaces",
            Self::Mptcp => "MPTCP",
            Self::TxTime => "SO_TXTIME",
            Self::UdpGso => "UDP GSO",
            Self::UdpGro => "UDP GRO",
        }
    }

    /// Returns what is lost without it.
    pub const fn without(self) -> &'static str {
        match self {
            Self::Bpf => "no `marcato crq`, and no `marcato run`",
            Self::Btf => "`marcato crq` cannot see the drops and marks of queues, and does not attach",
            Self::BpfFs => "`marcato crq` cannot leave its programs on a device",
            Self::CgroupV2 => "no `marcato run`: sockets of one command cannot be told from others",
            Self::Clsact => "`marcato crq` needs tcx (Linux 6.6) instead",
            Self::Tcx => "`marcato crq` uses clsact instead, whose filters `tc qdisc del` removes",
            Self::Htb => "`marcato crq` only watches, and low lanes have no strict priority on this router",
            Self::Codel => "CRQ's queues have to be `droptail`",
            Self::FqCodel => "CRQ's standard queue has one queue for all flows",
            Self::Fq => "TCP paces by its own timers, and SO_TXTIME has no effect",
            Self::Bbr => "TCP lanes and labs cannot use the kernel's BBR; QUIC has its own",
            Self::Tun => "no `marcato lab`, and `marcato demo` and `papers` leave out their rows of a lab",
            Self::UserNamespaces => "`marcato lab` needs root",
            Self::Mptcp => "labs cannot compare with the kernel's multipath TCP; QUIC's lanes need nothing",
            Self::TxTime => "datagrams leave when they are sent: bursts are limited by QUIC's pacer alone",
            Self::UdpGso => "QUIC sends each packet by a call of its own, which costs processor time",
            Self::UdpGro => "QUIC reads each packet by a call of its own, which costs processor time",
        }
    }

    /// Returns how to get it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Bpf => {
                "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, on a kernel with CONFIG_BPF_SYSCALL"
            }
            Self::Btf => "use a kernel with CONFIG_DEBUG_INFO_BTF, and mount /sys",
            Self::BpfFs => "mount -t bpf bpf /sys/fs/bpf. `ip netns exec` hides the system's",
            Self::CgroupV2 => "mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified, and run as root",
            Self::Clsact => "use a kernel with CONFIG_NET_SCH_INGRESS: modprobe sch_ingress",
            Self::Tcx => "use Linux 6.6 or later",
            Self::Htb => "use a kernel with CONFIG_NET_SCH_HTB: modprobe sch_htb",
            Self::Codel => "use a kernel with CONFIG_NET_SCH_CODEL: modprobe sch_codel",
            Self::FqCodel => "use a kernel with CONFIG_NET_SCH_FQ_CODEL: modprobe sch_fq_codel",
            Self::Fq => "use a kernel with CONFIG_NET_SCH_FQ: modprobe sch_fq",
            Self::Bbr => "use a kernel with CONFIG_TCP_CONG_BBR: modprobe tcp_bbr",
            Self::Tun => "modprobe tun, and let users read and write /dev/net/tun",
            Self::UserNamespaces => {
                "allow them: sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0"
            }
            Self::Mptcp => "use a kernel with CONFIG_MPTCP, and sysctl net.mptcp.enabled=1",
            Self::TxTime => "use Linux 4.19 or later, with fq at the device",
            Self::UdpGso => "use Linux 4.18 or later",
            Self::UdpGro => "use Linux 5.0 or later",
        }
    }

    /// Kernel module that has it, where it may be one.
    pub(crate) const fn module(self) -> Option<&'static str> {
        match self {
            Self::Clsact => Some("sch_ingress"),
            Self::Htb => Some("sch_htb"),
            Self::Codel => Some("sch_codel"),
            Self::FqCodel => Some("sch_fq_codel"),
            Self::Fq => Some("sch_fq"),
            Self::Bbr => Some("tcp_bbr"),
            Self::Tun => Some("tun"),
            _ => None,
        }
    }

    /// Name of the queue discipline, for features that are one.
    pub(crate) const fn discipline(self) -> Option<&'static str> {
        match self {
            Self::Clsact => Some("clsact"),
            Self::Htb => Some("htb"),
            Self::Codel => Some("codel"),
            Self::FqCodel => Some("fq_codel"),
            Self::Fq => Some("fq"),
            _ => None,
        }
    }
}
