//! Delay-based congestion controls on a link: what their articles say of the queue, the link and others beside them.

use marcato_sim::scenario::Outcome;

use crate::outcome::outcome;

/// Runs endless flows of these congestion controls for 40 s over one link of 24 Mbit/s with a round trip of 40 ms and two
/// products of queue, and measures from 15 s on.
fn run(congestion: &[&str]) -> Outcome {
    let flow = |(number, name): (usize, &&str)| {
        format!(
            "[[flow]]\nname = \"f{number}\"\nkind = \"tcp\"\nfrom = \"a\"\nto = \"b\"\nstart = \"{number} s\"\n\
             congestion = {name}\n"
        )
    };
    let flows: String = congestion.iter().enumerate().map(flow).collect();
    outcome(&format!(
        "name = \"rivals\"\nduration = \"40 s\"\nwarm-up = \"15 s\"\nnodes = [\"a\", \"b\"]\n\
         [[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\nrate = \"24 Mbit/s\"\ndelay = \"20 ms\"\n\
         queue = {{ kind = \"droptail\", limit = \"240 kB\" }}\n{flows}"
    ))
}

/// Mean packets in the queue, and use of the link.
fn queue(outcome: &Outcome) -> (f64, f64) {
    let link = &outcome.links[0];
    (link.waiting.mean_packets, link.utilisation.unwrap())
}

#[test]
fn fast_keeps_alpha_packets_in_the_queue_and_the_link_busy() {
    for alpha in [10.0, 40.0] {
        let outcome = run(&[&format!("{{ kind = \"fast\", alpha = {alpha} }}")]);
        let (packets, used) = queue(&outcome);
        // The packet that is being sent is no longer in the queue, and half of one is a fraction of the window.
        assert!((alpha - 2.0..=alpha).contains(&packets), "{alpha}: {packets}");
        assert!(used > 0.99, "{alpha}: {used}");
        assert_eq!(outcome.links[0].drops, 0);
    }
}

#[test]
fn flows_of_copa_share_a_link_with_a_short_queue() {
    // NSDI 2018, section 3: 2.5 / delta = 5 packets of each at most.
    let (packets, used) = queue(&run(&["\"copa\""]));
    assert!(packets < 5.0 && used > 0.95, "{packets} {used}");
    let outcome = run(&["\"copa\"", "\"copa\""]);
    let (packets, used) = queue(&outcome);
    assert!(packets < 10.0 && used > 0.95, "{packets} {used}");
    let ratio = outcome.flows[0].goodput / outcome.flows[1].goodput;
    assert!((0.8..=1.25).contains(&ratio), "{ratio}");
}

#[test]
fn copa_notices_a_flow_that_fills_the_queue() {
    let outcome = run(&["\"copa\"", "\"cubic\""]);
    let ratio = outcome.flows[0].goodput / outcome.flows[1].goodput;
    // In its default mode alone, nothing of the link would be left to it.
    assert!((0.5..=2.0).contains(&ratio), "{ratio}");
}
