//! Workloads: sources of messages that other crates implement.

use std::fmt;

use marcato_scenario::traffic::{Message, Messaging, SHORTEST};
use marcato_units::{Bytes, Duration, Priority, Stream, Time};

use super::error::BuildError;
use super::plugins::Plugins;

/// Limit of the messages of one flow that a workload releases.
pub const MAX_RELEASES: usize = 1_000_000;

/// Message of a [`Workload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Time from the message before, or from the start of the flow.
    pub gap: Duration,
    /// Length; at least 16 bytes.
    pub size: Bytes,
    /// Priority.
    pub priority: Priority,
    /// Time for which it is worth sending; `None` for always.
    pub lifetime: Option<Duration>,
}

impl Release {
    /// Creates a message that never expires.
    pub const fn new(gap: Duration, size: Bytes, priority: Priority) -> Self {
        Self { gap, size, priority, lifetime: None }
    }
}

/// Source of the messages of a flow, for example a model of an application or a log that is replayed.
///
/// It cannot observe the network: its messages are released before the run begins.
///
/// ```
/// use marcato_sim::scenario::{Release, Workload};
/// use marcato_units::{Bytes, Duration, Priority, Seed, Stream, Time};
///
/// /// Urgent lines of chat, a minute apart on average.
/// #[derive(Debug)]
/// struct Chat;
///
/// impl Workload for Chat {
///     fn next(&mut self, _now: Time, random: &mut Stream) -> Option<Release> {
///         let gap = random.exponential(Duration::from_secs(60));
///         Some(Release::new(gap, Bytes::new(20 + random.below(200)), Priority::P0))
///     }
/// }
///
/// let mut random = Seed::new(1).stream("chat");
/// assert!(Chat.next(Time::ZERO, &mut random).is_some_and(|line| line.size >= Bytes::new(20)));
/// ```
pub trait Workload: fmt::Debug {
    /// Returns the next message; `None` after the last.
    ///
    /// `now` is the release time of the message before, or the start of the flow. `random` are the
    /// random numbers of this flow. They depend on the seed of the run and the flow's name.
    fn next(&mut self, now: Time, random: &mut Stream) -> Option<Release>;
}

/// Returns the messaging of the flow `name` with the messages of its workload, which are released
/// from `start` until `end`.
pub(super) fn released(
    name: &str,
    messaging: &Messaging,
    plugins: &Plugins,
    [start, end]: [Time; 2],
    mut random: Stream,
) -> Result<Messaging, BuildError> {
    let mut messaging = messaging.clone();
    let Some(plugin) = messaging.workload.clone() else { return Ok(messaging) };
    let mut workload = plugins.make_workload(name, &plugin)?;
    let wrong = |problem: String| BuildError::Workload {
        flow: name.to_owned(),
        workload: plugin.name.clone(),
        problem,
    };
    let (mut now, mut count) = (start, 0);
    while let Some(Release { gap, size, priority, lifetime }) = workload.next(now, &mut random) {
        now += gap;
        if now >= end {
            break;
        }
        if size < SHORTEST {
            return Err(wrong(format!("a message has at least 16 B, not {} B", size.get())));
        }
        // One that releases all its messages at once would otherwise never end.
        if count == MAX_RELEASES {
            return Err(wrong(format!(
                "it releases more than {MAX_RELEASES} messages: let it release fewer"
            )));
        }
        count += 1;
        messaging.messages.push(Message { name: None, after: now - start, size, priority, lifetime });
    }
    // Messages of the file come first among those of one time.
    messaging.messages.sort_by_key(|message| message.after);
    Ok(messaging)
}
