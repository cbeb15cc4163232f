//! Tests of the Conductor's debts under windows, pacers, losses and silent lanes.

use marcato_quic::{Batch, Message, Pacing, PathScheduler, Session, SessionConfig};
use marcato_sched::Debt;
use marcato_sched::conductor::Config;
use marcato_sim::quic::{QuicApp, QuicContext, QuicHost, QuicRole};
use marcato_sim::{DatagramFlow, LinkConfig, Loss, Network, Route, Side};
use marcato_units::{Bytes, Priority, Rate, Seed, Time};

use crate::common::*;

/// Application that always has data of every level to send, in messages that end in short packets.
#[derive(Default)]
struct Busy {
    /// Bytes of all levels and of P4, at the latest look before P4 was last granted data.
    since: Option<(Bytes, Bytes)>,
    /// Bytes of all levels at the previous look.
    before: Bytes,
    /// Most bytes granted to others while P4 waited. It may be too high by what passes between two
    /// looks.
    passed: Bytes,
    looks: u64,
}

impl Busy {
    fn look(&mut self, session: &Session) {
        let counters = session.conducted();
        let own = counters.level(Priority::P4).granted.bytes;
        let all = counters.total().granted.bytes;
        let (total, mine) = *self.since.get_or_insert((all, own));
        self.passed = self.passed.max((all - total) - (own - mine));
        if own != mine {
            self.since = Some((self.before + (own - mine), own));
        }
        self.before = all;
        self.looks += 1;
    }
}

impl QuicApp for Busy {
    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        let now = context.now();
        let session = context.session();
        self.look(session);
        let mut any = false;
        for level in Priority::ALL {
            while session.conducted().level(level).queued.bytes < Bytes::kb(100) {
                session.send(now, Message::new(body(level as u64, 10_000)).with_priority(level)).unwrap();
                any = true;
            }
        }
        any
    }
}

#[test]
fn the_least_urgent_level_waits_no_longer_than_the_debt_bound() {
    let debt = Debt::authors();
    let bound = debt.wait_bound(Priority::P4, Config::default().chunk).unwrap();
    for pacing in [Pacing::Off, Pacing::Session, Pacing::Strict] {
        for (seed, loss, outage) in [(1, 0.0, false), (2, 0.005, false), (3, 0.03, false), (4, 0.005, true)] {
            let config = SessionConfig {
                conductor: Config::with_debt(debt),
                path_scheduler: PathScheduler::LowRtt,
                // A batch is one grant, and the bound assumes that a grant is one chunk.
                batch: Batch::ONE,
                pacing,
                ..SessionConfig::default()
            };
            let mut net = Network::new(Seed::new(seed));
            let far = net.node("server");
            let mut routes = Vec::new();
            for index in 0..2 {
                let near = net.node(&format!("client/{index}"));
                let way = || LinkConfig::new(Rate::from_mbps(10), ms(15)).queue(short_queue(100));
                let (up, _) = net.link(near, far, way().loss(Loss::Random(loss)), way());
                if outage && index == 1 {
                    net.set_link_up_at(up, at(2000), false);
                    net.set_link_up_at(up, at(3000), true);
                }
                routes.push(Route::new(near, far));
            }
            let (identity, trust) = identity();
            let epoch = std::time::Instant::now();
            let role = QuicRole::Client { trust, name: "server".to_owned() };
            let client = QuicHost::new(role, config.clone(), epoch, Busy::default());
            let server = QuicHost::new(QuicRole::Server { identity }, config, epoch, ());
            let flow = net.datagrams(DatagramFlow::new(client, server, routes)).unwrap();
            net.run_until(Time::from_secs(8));

            let host: &QuicHost = net.host(flow, Side::Client).unwrap();
            let (busy, session): (&Busy, &Session) = (host.app().unwrap(), host.session().unwrap());
            let what = format!("{pacing:?}, {loss}, {outage}: {:?}", session.stats());
            assert!(busy.looks > 1000, "{what}");
            assert_eq!(session.stats().reinjected > 0, outage, "{what}");
            let counters = session.conducted();
            // P4 always waits and is never in debt, so no redistribution is needed to make a level
            // eligible.
            assert_eq!(counters.redistributions, 0, "{what}");
            assert!(busy.passed <= bound, "{:?} of {bound:?}, {what}", busy.passed);
            // If all levels always wait, each sends as much as the levels after it pay back: 2 for
            // each byte of P4, 1.5 for each of P3, 1 of P2 and 0.5 of P1, hence 1 to 2 to 5 to 10
            // to 15.
            let granted = |level| counters.level(level).granted.bytes.get() as f64;
            let p4 = granted(Priority::P4);
            for (level, share) in Priority::ALL.into_iter().zip([15.0, 10.0, 5.0, 2.0, 1.0]) {
                let measured = granted(level) / p4;
                assert!((measured / share - 1.0).abs() < 0.1, "{level}: {measured} of {share}, {what}");
            }
        }
    }
}
