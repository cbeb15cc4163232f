//! Tasks that wait for room to send a message: each place that becomes free wakes one, in order.
//!
//! A task that is woken and finds room wakes the next one of its level, if there is room for it too. One that
//! is dropped after it was woken wakes the next in any case, so that no place is left unused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use marcato_stream::Message;
use marcato_units::Priority;

use crate::signal::{Signal, lock};

/// Room for messages of one sender, and those that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Those that wait for anything else than a place for one message.
    all: Signal,
    line: Arc<Mutex<Line>>,
}

/// Tasks that wait, in order, by the level of their message.
#[derive(Debug, Default)]
struct Line {
    next: u64,
    levels: [BTreeMap<u64, Waiting>; Priority::COUNT],
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    /// `None` once the task was woken.
    waker: Option<Waker>,
}

/// Place of a task in the line, which it leaves on drop.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<Held>);

#[derive(Debug)]
struct Held {
    line: Arc<Mutex<Line>>,
    level: Priority,
    number: u64,
}

impl Line {
    /// Returns the first task of a level that was not woken, and its message.
    fn first(&mut self, level: Priority) -> Option<(u64, &mut Waiting)> {
        let mut waiting = self.levels[level.index()].iter_mut();
        waiting.find(|(_, waiting)| waiting.waker.is_some()).map(|(number, waiting)| (*number, waiting))
    }
}

impl Held {
    /// Stores the waker of the task.
    fn wait(&self, context: &Context<'_>) {
        let mut line = lock(&self.line);
        if let Some(waiting) = line.levels[self.level.index()].get_mut(&self.number) {
            match &mut waiting.waker {
                Some(waker) => waker.clone_from(context.waker()),
                waker => *waker = Some(context.waker().clone()),
            }
        }
    }

    /// Leaves the line. Returns whether the task was woken.
    fn leave(&self) -> bool {
        let left = lock(&self.line).levels[self.level.index()].remove(&self.number);
        left.is_some_and(|waiting| waiting.waker.is_none())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        if held.leave() {
            let next = lock(&held.line).first(held.level).and_then(|(_, waiting)| waiting.waker.take());
            next.into_iter().for_each(Waker::wake);
        }
    }
}

impl Room {
    /// Returns the signal of every change.
    pub(crate) const fn changes(&self) -> &Signal {
        &self.all
    }

    /// Wakes all tasks, because something has changed for all messages.
    pub(crate) fn notify_waiters(&self) {
        self.all.notify_waiters();
        let mut line = lock(&self.line);
        let waiting = line.levels.iter_mut().flat_map(BTreeMap::values_mut);
        let wakers: Vec<_> = waiting.filter_map(|waiting| waiting.waker.take()).collect();
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the next task of each level whose message would be admitted.
    pub(crate) fn freed(&self, admits: impl Fn(&Message) -> bool) {
        self.all.notify_waiters();
        let mut line = lock(&self.line);
        let next = Priority::ALL.map(|level| {
            let (_, waiting) = line.first(level)?;
            if admits(&waiting.message) { waiting.waker.take() } else { None }
        });
        drop(line);
        next.into_iter().flatten().for_each(Waker::wake);
    }

    /// Polls for the outcome of an `attempt` to send a message, which is `None` while there is no room.
    /// `admits` is asked without a lock, and says whether there is room for another's message.
    ///
    /// A task that was woken has to poll again or drop its place, as with a semaphore.
    pub(crate) fn poll_send<T>(
        &self,
        place: &mut Place,
        context: &mut Context<'_>,
        message: &Message,
        admits: impl Fn(&Message) -> bool,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Poll<T> {
        if place.0.is_none() {
            // Most find room, and wait for nobody.
            if let Some(outcome) = attempt() {
                return Poll::Ready(outcome);
            }
            let level = message.priority;
            let mut line = lock(&self.line);
            let number = line.next;
            line.next += 1;
            line.levels[level.index()].insert(number, Waiting { message: message.clone(), waker: None });
            place.0 = Some(Held { line: Arc::clone(&self.line), level, number });
        }
        if let Some(held) = &place.0 {
            // From here on no notification is missed.
            held.wait(context);
            let Some(outcome) = attempt() else { return Poll::Pending };
            held.leave();
            self.pass_on(held.level, admits);
            place.0 = None;
            return Poll::Ready(outcome);
        }
        Poll::Pending
    }

    /// Waits for the outcome of an attempt, as [`poll_send`](Self::poll_send) does.
    pub(crate) async fn send<T>(
        &self,
        message: &Message,
        admits: impl Fn(&Message) -> bool,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> T {
        let mut place = Place::default();
        std::future::poll_fn(|context| self.poll_send(&mut place, context, message, &admits, &mut attempt))
            .await
    }

    /// Wakes the next task of a level, if its message would be admitted.
    fn pass_on(&self, level: Priority, admits: impl Fn(&Message) -> bool) {
        // The sender's lock is taken before that of the line elsewhere, so not within it here.
        let mut line = lock(&self.line);
        // One that was woken and has not looked yet passes on itself.
        if line.levels[level.index()].values().next().is_none_or(|first| first.waker.is_none()) {
            return;
        }
        let next = line.first(level).map(|(number, waiting)| (number, waiting.message.clone()));
        drop(line);
        let Some((number, message)) = next else { return };
        if !admits(&message) {
            return;
        }
        let mut line = lock(&self.line);
        // If it has left meanwhile, it is the one after it. If it was woken, it passes on itself.
        let next = match line.levels[level.index()].get_mut(&number) {
            Some(waiting) => waiting.waker.take(),
            None => line.first(level).and_then(|(_, waiting)| waiting.waker.take()),
        };
        drop(line);
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Places, of which each message takes one.
    #[derive(Default)]
    struct Sender {
        room: Room,
        free: AtomicUsize,
    }

    impl Sender {
        async fn send(&self, level: Priority) {
            let take = || self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).ok().map(drop);
            self.room.send(&message(level), |_| self.has_room(), take).await;
        }

        fn has_room(&self) -> bool {
            self.free.load(SeqCst) > 0
        }

        fn free(&self, places: usize) {
            self.free.fetch_add(places, SeqCst);
            self.room.freed(|_| self.has_room());
        }

        fn waiting(&self) -> usize {
            lock(&self.room.line).levels.iter().map(BTreeMap::len).sum()
        }
    }

    fn message(level: Priority) -> Message {
        Message::new("x").with_priority(level)
    }

    struct Task<'a> {
        sends: Pin<Box<dyn Future<Output = ()> + 'a>>,
        woken: Arc<Woken>,
    }

    impl<'a> Task<'a> {
        fn new(sender: &'a Sender, level: Priority) -> Self {
            let mut task = Self { sends: Box::pin(sender.send(level)), woken: Arc::default() };
            assert!(!task.poll());
            task
        }

        fn poll(&mut self) -> bool {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.sends.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        }

        fn woken(&self) -> usize {
            self.woken.0.load(SeqCst)
        }
    }

    #[test]
    fn a_free_place_wakes_the_first_that_waits_at_each_level() {
        let sender = Sender::default();
        let mut tasks: Vec<_> = (0..4).map(|_| Task::new(&sender, Priority::P2)).collect();
        let other = Task::new(&sender, Priority::P0);
        sender.room.freed(|message| message.priority == Priority::P4);
        assert_eq!((tasks[0].woken(), other.woken()), (0, 0));
        sender.free(1);
        assert_eq!(tasks.iter().map(Task::woken).collect::<Vec<_>>(), [1, 0, 0, 0]);
        assert_eq!(other.woken(), 1);
        assert!(tasks[0].poll());
        // It has taken the place, so it wakes nobody.
        assert_eq!(tasks[1].woken(), 0);
        // One that was woken in vain keeps its place.
        sender.room.notify_waiters();
        assert!(tasks[1..].iter_mut().all(|task| !task.poll()));
        // The first of two passes on, and then there is no room for more.
        sender.free(2);
        assert_eq!(tasks.iter().map(Task::woken).collect::<Vec<_>>(), [1, 2, 1, 1]);
        assert!(tasks[1].poll());
        assert_eq!(tasks.iter().map(Task::woken).collect::<Vec<_>>(), [1, 2, 2, 1]);
        assert!(tasks[2].poll());
        assert_eq!((tasks[3].woken(), sender.waiting()), (1, 2));
    }

    #[test]
    fn a_task_that_is_dropped_passes_its_wake_up_on() {
        let sender = Sender::default();
        let mut tasks: Vec<_> = (0..3).map(|_| Task::new(&sender, Priority::P2)).collect();
        drop(tasks.remove(1));
        sender.free(1);
        assert_eq!((tasks[0].woken(), tasks[1].woken()), (1, 0));
        drop(tasks.remove(0));
        assert_eq!(tasks[0].woken(), 1);
        assert!(tasks[0].poll());
        drop(tasks);
        assert_eq!(sender.waiting(), 0);
    }

    #[test]
    fn a_place_that_becomes_free_during_an_attempt_is_noticed() {
        let room = Room::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut tries = 0;
        let message = message(Priority::P1);
        let sends = room.send(
            &message,
            |_| true,
            || {
                tries += 1;
                // The second attempt is that of a task in the line.
                if tries == 2 {
                    room.freed(|_| true);
                }
                (tries > 2).then_some(())
            },
        );
        let mut sends = pin!(sends);
        let mut context = Context::from_waker(&waker);
        assert!(sends.as_mut().poll(&mut context).is_pending());
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(sends.as_mut().poll(&mut context).is_ready());
    }
}
