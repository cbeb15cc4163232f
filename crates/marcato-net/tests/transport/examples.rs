//! Examples that show a guarantee: it holds.

use crate::common::{for_both_engines, within};
use marcato_net::Engine;

#[allow(dead_code, reason = "an example has a main function")]
#[path = "../../examples/server_restart.rs"]
mod server_restart;

async fn no_reading_is_lost_when_the_server_restarts(engine: Engine) {
    let report = within(server_restart::run(engine, 400)).await.unwrap();
    assert_eq!(report.taken, 400, "{report:?}");
    assert!(report.client.connections > 1, "{report:?}");
}

for_both_engines! { no_reading_is_lost_when_the_server_restarts }
