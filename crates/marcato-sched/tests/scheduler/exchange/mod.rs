//! The exchange.

mod deadlines;
mod invariants;
mod model;
mod scenarios;

use marcato_sched::exchange::{Config, Exchange, Parameters, Response, Rules, Urgency};
use marcato_units::Bytes;

use crate::common::CHUNK;

/// Creates an exchange with these rules, for grants of up to [`CHUNK`] and turns of half of it.
fn exchange(rules: Rules) -> Exchange {
    Exchange::new(config(rules)).expect("valid rules")
}

fn config(rules: Rules) -> Config {
    Config { rules, chunk: CHUNK, turn: CHUNK / 2, max_staged: Bytes::kb(100), ..Config::default() }
}

fn urgency(urgency: u8) -> Urgency {
    Urgency::new(urgency).expect("0 to 7")
}

fn sequential(u: u8) -> Parameters {
    Parameters::sequential(urgency(u))
}

fn incremental(u: u8) -> Parameters {
    Parameters::incremental(urgency(u))
}

/// Tells whether a response can send, by what it shows of itself.
fn can_send(response: &Response) -> bool {
    !response.held && (!response.staged.is_zero() || response.finished && !response.ended)
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("few")
}
