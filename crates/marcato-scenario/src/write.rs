//! Serialisation of an experiment as a file that reads back as an equal one.

use marcato_document::quantity::{rate, size, span};
use marcato_document::{Pairs, WriteKeyed as _, array, quote, strings};
use marcato_units::Time;

use crate::experiment::Experiment;
use crate::flow::{Flow, FlowKind};
use crate::kinded::Kinded as _;
use crate::link::{Change, Link};
use crate::read::record::all;
use crate::record::Pcap;

fn time(time: Time) -> String {
    span(time - Time::ZERO)
}

impl Experiment {
    /// Returns the experiment as a scenario file with every default spelled out.
    ///
    /// The file reads back as an equal experiment, unless it exceeds the [limit of a
    /// file](crate::limit::MAX_FILE).
    pub fn to_toml(&self) -> String {
        let mut root = Pairs::new();
        root.text("name", &self.name);
        if !self.about.is_empty() {
            root.text("about", &self.about);
        }
        root.text("duration", span(self.duration));
        root.text("warm-up", span(self.warm_up));
        root.raw("seed", self.seed.get());
        root.raw("nodes", strings(&self.nodes));
        if self.links.is_empty() {
            root.raw("link", "[]");
        }
        let mut out = root.lines();
        for link in &self.links {
            out += "\n[[link]]\n";
            out += &link_pairs(link).lines();
        }
        for flow in &self.flows {
            out += "\n[[flow]]\n";
            out += &flow_pairs(flow).lines();
        }
        out += "\n[record]\n";
        let mut record = Pairs::new();
        record.text("every", span(self.record.every));
        if !self.record.series.is_empty() && self.record.series == all(self) {
            record.text("series", "all");
        } else {
            record.raw("series", array(self.record.series.iter().map(|series| quote(&series.to_string()))));
        }
        let Pcap { links, snaplen, format } = &self.record.pcap;
        record.raw("pcap", strings(links)).text("pcap-format", format.name());
        record.text("snaplen", snaplen.map_or_else(|| "whole".to_owned(), size));
        out + &record.lines()
    }
}

fn link_pairs(link: &Link) -> Pairs {
    let mut pairs = Pairs::new();
    pairs.text("name", &link.name).raw("between", strings(&link.between)).text("mtu", size(link.mtu));
    link.there.write(&mut pairs);
    if link.back != link.there {
        let mut back = Pairs::new();
        link.back.write(&mut back);
        pairs.raw("back", back.inline());
    }
    if !link.changes.is_empty() {
        pairs.raw("changes", array(link.changes.iter().map(change)));
    }
    pairs
}

fn change(of: &Change) -> String {
    let mut pairs = Pairs::new();
    pairs.text("at", time(of.at)).text("way", of.way.name());
    if let Some(to) = of.rate {
        pairs.text("rate", rate(to));
    }
    if let Some(up) = of.up {
        pairs.raw("up", up);
    }
    if let Some(delay) = of.delay {
        pairs.text("delay", span(delay)).raw("reorder", of.reorder);
    }
    if let Some(to) = &of.loss {
        pairs.raw("loss", to.toml());
    }
    if let Some(to) = &of.queue {
        pairs.raw("queue", to.toml());
    }
    pairs.inline()
}

fn flow_pairs(flow: &Flow) -> Pairs {
    let mut pairs = Pairs::new();
    flow.common().write(&mut pairs);
    pairs.text("kind", flow.kind.name());
    flow.kind.write_keys(&mut pairs);
    if let FlowKind::Messages(messages) = &flow.kind
        && !messages.feeder.has_conductor()
    {
        pairs.remove("preset");
        pairs.remove("chunk");
        pairs.remove("coupled");
    }
    if !flow.also.is_empty() {
        let ends = |end: usize| array(flow.pairs().map(|pair| quote(pair[end])));
        pairs.raw("from", ends(0)).raw("to", ends(1));
        // The paths of each instance follow from its pair.
        pairs.remove("paths");
    } else if !matches!(flow.kind, FlowKind::Quic(_)) {
        pairs.text("from", &flow.from).text("to", &flow.to);
    }
    pairs
}
