//! Tests of the command `marcato`, apart from those that need a lab or time processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod blocks;
mod claims;
mod cut_short;
#[cfg(target_os = "linux")]
mod doctor;
mod documented;
mod handover;
mod papers;
mod process;
#[cfg(target_os = "linux")]
mod proxy;
mod serve;
mod sim;
#[cfg(target_os = "linux")]
mod start;
mod validate;

/// Scenario of flows from a client to a server, each with its name, kind and further keys, over one link.
fn over_one_link(head: &str, link: &str, flows: &[[&str; 3]]) -> String {
    let link = format!("[[link]]\nname = \"bottleneck\"\nbetween = [\"client\", \"server\"]\n{link}\n");
    let flows = flows.iter().map(|[name, kind, keys]| {
        format!(
            "[[flow]]\nname = \"{name}\"\nkind = \"{kind}\"\nfrom = \"client\"\nto = \"server\"\n{keys}\n"
        )
    });
    format!("{head}\nnodes = [\"client\", \"server\"]\n{link}{}", flows.collect::<String>())
}
