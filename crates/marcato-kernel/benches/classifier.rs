//! Time of the kernel's programs for a packet, by the kernel's own clock. Needs root.
//!
//! The packet belongs to a known flow and ends no cycle, as most do.

#[cfg(target_os = "linux")]
#[path = "../tests/traps/build.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a part of it is used here"
)]
mod build;

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use criterion::Criterion;
    use marcato_kernel::{Configuration, Pass, Programs};
    use marcato_queue::trap::TrapConfig;
    use marcato_units::Time;
    use marcato_wire::{FlowTuple, QuicHeader, TcpFlags, TcpSegment, TcpTimestamps, Transport};

    use super::build::{Frame, frame, tuple};

    const FLOWS: u32 = 100_000;

    pub(super) fn bench(criterion: &mut Criterion) {
        let configuration = Configuration::watching(TrapConfig::marcato());
        let loaded = Programs::load(&configuration, FLOWS).and_then(|mut programs| {
            programs.load_tests()?;
            Ok(programs)
        });
        let programs = match loaded {
            Ok(programs) => programs,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        let segment = TcpSegment {
            flags: TcpFlags::ACK,
            payload: 1448,
            timestamps: Some(TcpTimestamps { value: 1, echo: 2 }),
            ..TcpSegment::default()
        };
        let tcp = Transport::Tcp(segment);
        let udp =
            Transport::Udp { payload: 1200, quic: Some(QuicHeader::Short { fixed: true, spin: false }) };
        let mut group = criterion.benchmark_group("kernel");
        for (name, pass, packet, protocol, version) in [
            ("classifier, TCP over IPv4", Pass::Egress, &tcp, FlowTuple::TCP, 4),
            ("classifier, TCP over IPv6", Pass::Egress, &tcp, FlowTuple::TCP, 6),
            ("classifier, UDP that is not QUIC", Pass::Egress, &udp, FlowTuple::UDP, 4),
            ("other direction, TCP over IPv4", Pass::Ingress, &tcp, FlowTuple::TCP, 4),
        ] {
            let flow = tuple(protocol, 50_000, version);
            let flow = if pass == Pass::Egress { flow } else { flow.reversed() };
            let bytes = frame(&Frame::new(&flow, packet));
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|count| {
                    // The kernel's mean is in whole nanoseconds, which many runs make exact enough.
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    let mean = programs.time(pass, Time::from_millis(1), &bytes, count.max(1));
                    mean.map_or(Duration::ZERO, |mean| mean * count)
                });
            });
        }
        group.finish();
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    {
        let mut criterion = criterion::Criterion::default().configure_from_args();
        linux::bench(&mut criterion);
        criterion.final_summary();
    }
}
