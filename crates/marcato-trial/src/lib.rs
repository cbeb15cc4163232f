//! Trials: the flows of a scenario over the sockets of real hosts, in a [lab](marcato_lab::Lab).
//!
//! A trial runs the applications of the simulator, over other sockets: TCP is the kernel's, with its
//! congestion control; UDP packets and QUIC datagrams leave by sockets, too. Its links are those of
//! the lab. What is measured, and how, is the simulator's, so a trial and a simulation of the same
//! scenario give results of the same form, which can be laid over each other.
//!
//! The kernel does not have all that a scenario can ask of TCP. [`open`] refuses what would change
//! the meaning of a flow, and warns of smaller differences.
//!
//! ```no_run
//! use marcato_lab::{LabOptions, Traces};
//! use marcato_scenario::Scenario;
//! use marcato_units::Time;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scenario = Scenario::load("examples/codel-cubic.toml".as_ref(), &Default::default())?;
//! let run = scenario.run(0).ok_or("it has a run")?;
//! let trial = marcato_trial::open(&run.experiment, &Traces::new(), LabOptions::default())?;
//! let outcome = trial.run(&mut |_: Time| ())?;
//! println!("{:.1} Mbit/s", outcome.flows[0].goodput);
//! # Ok(())
//! # }
//! ```
//!
//! One thread drives all flows, and another moves the packets. Timers are late by up to a millisecond on a
//! busy machine. Rates of UDP flows hold nevertheless, as packets are due at computed times.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod agenda;
mod error;
mod kernel_tcp;
mod open;
mod quic;
mod route_socket;
mod settings;
mod socket_fabric;
mod tcp;
mod udp;
mod watch;

pub use error::TrialError;
pub use open::{open, open_in};
pub use socket_fabric::SocketFabric;
