//! Beyond the paper: other configurations of CRQ.

use marcato_queue::trap::{Evidence, Response};
use marcato_queue::{Admission, Buffer, ClassConfig, CrqConfig, Queues, Sharing};
use marcato_report::{Row, Unit};
use marcato_units::{Bytes, Duration};

use super::published::{Control, Pair, RTTS, SINGLE, Stack};
use super::scale::{Plan, Ticket, scores, words};
use super::scene::{self, Column, RULES};
use super::setup::{Bottleneck, Setup};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Divisor of the paper's transfer.
const PART: u64 = 4;
const STACKS: [Stack; 2] = [Stack::OneWay(Control::Cubic), Stack::OneWay(Control::Bbr)];

/// A variant: its name in row ids, its name in words, and the change of the configuration.
type Variant = (&'static str, &'static str, fn(&mut CrqConfig));

fn responsive(config: &mut CrqConfig, change: impl FnOnce(&mut ClassConfig)) {
    if let Queues::Two { responsive, .. } = &mut config.queues {
        change(responsive);
    }
}

const VARIANTS: [Variant; 17] = [
    ("none", "as it is", |_| ()),
    ("threshold80", "a response is 80 %", |config| config.trap.threshold = 80),
    ("threshold95", "a response is 95 %", |config| config.trap.threshold = 95),
    ("response1", "a response one cycle later", |config| {
        config.trap.response = Response { first: 1, last: 1 }
    }),
    ("response1-2", "one or two cycles later", |config| {
        config.trap.response = Response { first: 1, last: 2 }
    }),
    ("response1-3", "one to three cycles later", |config| {
        config.trap.response = Response { first: 1, last: 3 }
    }),
    ("reassess2", "judged anew after 2 cycles", |config| config.trap.reassess = 2),
    ("reassess4", "judged anew after 4 cycles", |config| config.trap.reassess = 4),
    ("reassess8", "judged anew after 8 cycles", |config| config.trap.reassess = 8),
    ("combined", "loss and marks count for both", |config| {
        config.trap.evidence = Evidence::Combined;
        if let Queues::Two { admission, .. } = &mut config.queues {
            *admission = Admission::Any;
        }
    }),
    ("three", "three queues", |config| {
        if let Queues::Two { responsive, .. } = config.queues {
            config.queues = Queues::Three { loss: responsive, ecn: responsive };
        }
    }),
    ("share2", "two thirds for the responsive queue", |config| responsive(config, |class| class.share = 2)),
    ("share3", "three quarters", |config| responsive(config, |class| class.share = 3)),
    ("strict", "the responsive queue first", |config| config.sharing = Sharing::Strict { least: 0 }),
    ("fill", "buffers by fill rate", |config| {
        let most = match config.standard.buffer {
            Buffer::Packets(packets) => Bytes::new(1500) * packets,
            _ => Bytes::kb(1000),
        };
        let buffer = Buffer::FillRate { span: Duration::from_millis(20), least: Bytes::kb(30), most };
        config.standard.buffer = buffer;
        responsive(config, |class| class.buffer = buffer);
    }),
    ("paper", "the rules as printed", |config| config.trap = super::watched::Preset::Paper.rules()),
    ("marcato", "Marcato's rules", |config| config.trap = super::watched::Preset::Marcato.rules()),
];

/// Each variant against the baseline of one queue.
pub(super) fn sweep(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let bytes = scale.bytes(SINGLE / PART);
    let mut cells: Vec<(Variant, Pair, Duration, Stack, Ticket, Ticket, Duration)> = Vec::new();
    for pair in [Pair::Drop, Pair::Ecn] {
        for rtt in RTTS {
            for stack in STACKS {
                let from = scale.udp_from(rtt);
                let b = Setup { seeds: 1, ..scene::baseline(pair, rtt, Column::Clean) };
                let at_most = b.at_most;
                let baseline = plan.add(scene::single(b, stack, bytes, from));
                for variant in VARIANTS {
                    let mut config = scene::crq(pair, rtt, Column::Clean, RULES);
                    variant.2(&mut config);
                    let setup = scene::against(pair, rtt, Column::Clean, RULES);
                    let setup = Setup { bottleneck: Bottleneck::Crq(config), seeds: 1, ..setup };
                    let crq = plan.add(scene::single(setup, stack, bytes, from));
                    cells.push((variant, pair, rtt, stack, baseline, crq, at_most));
                }
            }
        }
    }
    Box::new(move |runs: &Runs| {
        let rows = cells.iter().map(|&((id, what, _), pair, rtt, stack, baseline, crq, at_most)| {
            let id = format!("crq.sweep.{id}.{}.{}.{}", pair.id(), rtt.as_millis(), stack.id());
            let what =
                format!("FCT score, {what}, {}, {} ms, {}", pair.name(), rtt.as_millis(), stack.name());
            Row::new(id, what, Unit::Ratio).samples(&scores(runs, baseline, crq, at_most))
        });
        let text = prose::text(&format!(include_str!("sweep.md"), size = words(bytes)));
        Answer::new("Beyond: other configurations", text, rows.collect())
    })
}
